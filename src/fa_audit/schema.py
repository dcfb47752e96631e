"""What a file says against its JSON schema: one line a problem, in the words of the schema's descriptions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import jsonschema

from fa_audit.errors import AuditError, printable, shortened, unknown

MOST_PROBLEMS = 5
MOST_VALUES, DEEPEST = 100_000, 20  # more than anybody writes, and little enough to be checked within seconds
STRICT = jsonschema.validators.extend(  # JSON schema counts 5.0 as an integer; a seed or an epoch count it is not
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda checker, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)


def refusal(where: str, problems: Iterable[str]) -> AuditError:
    """One error that lists problems, the first five of them.

    Args:
        where: what has them.
    """
    found = list(dict.fromkeys(map(printable, problems)))
    more = f"\n  ... and {len(found) - MOST_PROBLEMS} more" if len(found) > MOST_PROBLEMS else ""
    return AuditError(f"{where}: " + "\n  ".join(found[:MOST_PROBLEMS]) + more)


def size_problems(value: Any) -> Iterator[str]:
    """What makes a parsed file too large to be looked at; with aliases, a few lines of YAML are enough for that."""
    level, count = [value], 0
    for _ in range(DEEPEST):
        level = list(islice(chain.from_iterable(map(_children, level)), MOST_VALUES))
        count += len(level)
    if count >= MOST_VALUES:
        yield f"top level: found {MOST_VALUES} values or more; expected fewer, or they are not checked within seconds."
    elif level:
        yield f"top level: found {DEEPEST} mappings or lists inside each other; expected fewer."


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()


def schema_problems(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    """Every violation of a schema, and every number that is not finite: its place, what was found, what is valid.

    Args:
        value: a parsed file.
        schema: its JSON schema; the description of a value completes the sentence "found ...; expected ...".
    """
    errors = STRICT(schema).iter_errors(value)
    for error in sorted(errors, key=lambda error: [str(part) for part in error.absolute_path]):
        yield _explain(error)
    for where, number in _numbers(value, ""):
        if not math.isfinite(number):
            yield f"{where.removeprefix('.')}: found {number}; expected a finite number."


def _numbers(value: Any, where: str) -> Iterator[tuple[str, float]]:
    """Every float in nested mappings and lists, with its place."""
    if isinstance(value, float):
        yield where, value
    children = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _numbers(child, f"{where}.{key}")


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
