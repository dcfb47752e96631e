"""Validate the content of files by strict pydantic models, with one line for each problem.

Imports no torch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fa_audit.core.errors import AuditError, printable, shortened

_EXPONENT = re.compile(r"[-+.\d]+[eE][-+]?\d+")
_MOST_PROBLEMS = 5  # listed in one message
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


class Strict(BaseModel):
    """A mapping that refuses unknown keys, 5.0 as an integer, true as a number, NaN and infinities."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class Tolerant(Strict, extra="ignore"):
    """A `Strict` mapping that ignores unknown keys."""


def _different(values: list[T]) -> list[T]:
    # true and 1 are equal in Python, but not in a configuration.
    if len({(isinstance(value, bool), value) for value in values}) < len(values):
        raise AuditError("items should be different.")
    return values


Different = Annotated[
    list[T], AfterValidator(_different), Field(json_schema_extra={"uniqueItems": True})
]


def validated(
    model: type[M], value: Any, where: str, line_of: Callable[[str], str] = lambda place: ""
) -> M:
    """Validate a parsed file as a model; `where` and `line_of` are as in `config_error`.

    Raises:
        AuditError: the value does not fit the model; the message lists the first five problems.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise config_error(where, _problems(error, value), line_of) from None


def config_error(where: str, problems: Iterable[str], line_of: Callable[[str], str]) -> AuditError:
    """Return one error that lists the first five problems.

    Args:
        where: the file or value with the problems.
        problems: each begins with its place, such as ``settings.demo.epochs: ``.
        line_of: returns file and line of a place, or an empty text.
    """
    found = list(dict.fromkeys(map(printable, problems)))
    lines = [f"{line_of(text.partition(': ')[0]) or where}: {text}" for text in found]
    if len(lines) > _MOST_PROBLEMS:
        lines[_MOST_PROBLEMS:] = [f"... and {len(lines) - _MOST_PROBLEMS} more"]
    return AuditError("\n  ".join(lines))


def _problems(error: ValidationError, value: Any) -> Iterator[str]:
    """Yield a line for each faulty place, with the problems of all alternatives of a union type."""
    expected: dict[str, list[str]] = defaultdict(list)
    found: dict[str, str] = {}
    for problem in error.errors(include_url=False):
        place, message = _place(problem["loc"], value), problem["msg"]
        if problem["type"] == "missing":
            place = f"{place}.{problem['loc'][-1]}".removeprefix(".")
            found[place] = "."
        elif problem["type"] == "extra_forbidden":
            message, found[place] = "unknown key", f"; found {shortened(problem['input'])}."
        elif problem["type"] == "float_type" and _EXPONENT.fullmatch(str(problem["input"])):
            # YAML reads 1e-3 (no point) and 1.0e3 (no sign) as text.
            found[place] = (
                f"; found the text {shortened(problem['input'])}; write a point and the exponent's"
                " sign, as in 1.0e-3 or 1.0e+3."
            )
        elif problem["type"] == "value_error":  # validators of fa-audit name what they found
            message = message.removeprefix("Value error, ").replace("\n  ", "; ")
        else:
            found[place] = f"; found {shortened(problem['input'])}."
        expected[place].append(message)
    for place, messages in expected.items():
        text = " or ".join(dict.fromkeys(messages))
        yield f"{place or 'top level'}: {text}{found.get(place, '')}"


def _place(loc: Iterable[int | str], value: Any) -> str:
    """Return a place in a file, such as ``settings.demo``, without pydantic's names of types."""
    parts = []
    for part in loc:
        try:
            value = value[part]
        except (LookupError, TypeError):
            continue
        parts.append(str(part))
    return ".".join(parts)
