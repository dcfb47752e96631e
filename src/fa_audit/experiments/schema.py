"""What a file says against its JSON schema: one line a problem, in the words of the schema's descriptions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice, starmap
from typing import Any

import jsonschema

from fa_audit.core.errors import MOST_BITS, AuditError, printable, shortened, unknown

MOST_PROBLEMS = 5
LOOKED_FOR = 100  # problems: each takes its time
MOST_VALUES, DEEPEST = 100_000, 20  # more than anybody writes, and little enough to be checked within seconds
UNWRITABLE = re.compile("[\0\ud800-\udfff]")
PLAIN = (str, int, float, list, Mapping, type(None))  # bool is an int


def _unique_items(validator: Any, wanted: bool, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    """JSON schema's uniqueItems; jsonschema's own compares every item of mixed types with every other one."""
    if wanted and isinstance(value, list) and len(set(map(_identity, value))) < len(value):
        yield jsonschema.ValidationError("different items")


def _identity(value: Any) -> Any:
    """Equal for values that JSON schema takes as equal: 1 and 1.0 are, 1 and true are not."""
    return json.dumps(value, sort_keys=True) if isinstance(value, list | Mapping) else (isinstance(value, bool), value)


STRICT = jsonschema.validators.extend(  # JSON schema counts 5.0 as an integer; a seed or an epoch count it is not
    jsonschema.Draft202012Validator,
    {"uniqueItems": _unique_items},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda checker, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)


def some(problems: Iterable[str]) -> list[str]:
    """As many problems as are worth looking for."""
    return list(islice(problems, LOOKED_FOR))


def refusal(where: str, problems: Iterable[str]) -> AuditError:
    """One error that lists problems, the first five of them.

    Args:
        where: what has them.
    """
    found = list(dict.fromkeys(map(printable, problems)))
    least = "at least " if len(found) == LOOKED_FOR else ""
    more = f"\n  ... and {least}{len(found) - MOST_PROBLEMS} more" if len(found) > MOST_PROBLEMS else ""
    return AuditError(f"{where}: " + "\n  ".join(found[:MOST_PROBLEMS]) + more)


def plain_problems(value: Any) -> Iterator[str]:
    """What makes a parsed file too large to be looked at, or different from every JSON file: YAML has much that is.

    With aliases, a few lines of YAML are enough to be too large.
    """
    level = seen = [("", value)]
    for _ in range(DEEPEST):
        level = list(islice(chain.from_iterable(starmap(_children, level)), MOST_VALUES))
        seen = seen + level
        if len(seen) >= MOST_VALUES:
            yield f"top level: found {MOST_VALUES} values or more; expected fewer, or they are not checked in seconds."
            return
    if level:
        yield f"top level: found {DEEPEST} mappings or lists inside each other; expected fewer."
    else:
        yield from chain.from_iterable(_not_plain(where.removeprefix(".") or "top level", v) for where, v in seen)


def _children(where: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values in a mapping or a list, with their places."""
    children = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    return ((f"{where}.{key if isinstance(key, str) else shortened(key)}", child) for key, child in children)


def _not_plain(where: str, value: Any) -> Iterator[str]:
    """Keys and values that JSON does not have, integers that nobody can print, texts that no file name can hold."""
    for key in value if isinstance(value, Mapping) else ():
        if not isinstance(key, str) or UNWRITABLE.search(key):
            yield f"{where}: found the key {shortened(key)}; expected ordinary text, quoted if it looks like a number."
    if not isinstance(value, PLAIN):
        yield f"{where}: found {shortened(value)}; expected a number, text, true, false, null, a list or a mapping."
    elif isinstance(value, int) and value.bit_length() > MOST_BITS:
        yield f"{where}: found {shortened(value)}; expected at most {MOST_BITS} bits."
    elif isinstance(value, str) and UNWRITABLE.search(value):
        yield f"{where}: found {shortened(value)}; expected a text without the characters NUL and lone surrogates."


def schema_problems(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    """Every violation of a schema, and every number that is not finite: its place, what was found, what is valid.

    Args:
        value: a parsed file.
        schema: its JSON schema; the description of a value completes the sentence "found ...; expected ...".
    """
    errors = STRICT(schema).iter_errors(value)
    for error in sorted(errors, key=lambda error: [str(part) for part in error.absolute_path]):
        yield _explain(error)
    for where, number in _numbers("", value):
        if not math.isfinite(number):
            yield f"{where.removeprefix('.')}: found {number}; expected a finite number."


def _numbers(where: str, value: Any) -> Iterator[tuple[str, float]]:
    """Every float in nested mappings and lists, with its place."""
    if isinstance(value, float):
        yield where, value
    yield from chain.from_iterable(starmap(_numbers, _children(where, value)))


def _explain(error: jsonschema.ValidationError) -> str:
    """One line for a schema violation: place, what was found, what is valid."""
    where = ".".join(map(str, error.absolute_path)) or "top level"
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        strange = sorted(str(key) for key in set(error.instance) - set(known))
        return str(unknown("key", strange[0], known, where=where))
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        return f"{where}: missing {', '.join(missing)}; expected {error.schema.get('description', 'a mapping')}."
    return f"{where}: found {shortened(error.instance)}; expected {error.schema.get('description', error.message)}."
