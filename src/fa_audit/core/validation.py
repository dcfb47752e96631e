"""Validation of what is read from files: strict pydantic models, and one line for each problem.

The description of a field, and the docstring of a model, complete the sentence "found ...; expected
...". Imports no torch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from fa_audit.core.errors import AuditError, printable, shortened, unknown

MOST_PROBLEMS = 5  # in one message
KEY = "[key]"  # ends pydantic's place of a mapping's key
OF_UNIONS = ("anyOf", "oneOf", "allOf")
Schema = Mapping[str, Any]
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


class Strict(BaseModel):
    """A mapping of known keys: 5.0 is not an integer, true is not a number, NaN and infinities are
    refused.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class Tolerant(Strict, extra="ignore"):
    """As `Strict`, but unknown keys are allowed and ignored."""


def _different(values: list[T]) -> list[T]:
    if len({(isinstance(value, bool), value) for value in values}) < len(values):
        raise PydanticCustomError("different", "different items")
    return values


Different = Annotated[
    list[T], AfterValidator(_different), Field(json_schema_extra={"uniqueItems": True})
]


def validated(
    model: type[M], value: Any, where: str, line_of: Callable[[str], str] = lambda place: ""
) -> M:
    """Return a parsed file as a model; `where` and `line_of` are as in `config_error`.

    Raises:
        AuditError: the value does not fit the model; lists the first five problems.
    """
    try:
        return model.model_validate(value)
    except ValidationError:
        raise config_error(where, problems_of(model, value), line_of) from None


def problems_of(model: type[BaseModel], value: Any) -> Iterator[str]:
    """Yield what does not fit a model: place, what was found, what is expected."""
    try:
        model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        yield from _lines(
            model.model_json_schema(),
            value,
            [(one["type"], one["loc"], one["msg"]) for one in found],
        )


def config_error(where: str, problems: Iterable[str], line_of: Callable[[str], str]) -> AuditError:
    """Return one error that lists the first five problems.

    Args:
        where: the file or value that has them.
        line_of: the file and line of a place such as ``settings.demo.epochs``; empty where they are
            not known.
    """
    found = list(dict.fromkeys(map(printable, problems)))
    more = f"\n  ... and {len(found) - MOST_PROBLEMS} more" if len(found) > MOST_PROBLEMS else ""
    lines = [line_of(text.partition(": ")[0].partition(" ")[0]) for text in found[:MOST_PROBLEMS]]
    places = [line or where for line in lines[:1]] + lines[1:]
    return AuditError(
        "\n  ".join(": ".join(filter(None, pair)) for pair in zip(places, found)) + more
    )


def _lines(
    schema: Schema, value: Any, errors: list[tuple[str, tuple[Any, ...], str]]
) -> Iterator[str]:
    there = [_found(value, loc) for _, loc, _ in errors]
    missing = defaultdict(list)
    for (kind, loc, _), (place, _) in zip(errors, there):
        if kind == "missing":
            missing[place].append(str(loc[-1]))
    inside = {place[:length] for place, _ in there for length in range(len(place))}
    for (kind, loc, message), (place, found) in zip(errors, there):
        if loc and loc[-1] == KEY:
            yield _key_line(schema, value, _found(value, loc[:-2])[0], loc[-2])
        elif kind == "invalid_key":
            yield _key_line(schema, value, place[:-1], loc[-1])
        elif (
            kind == "value_error"
        ):  # of a validator, whose AuditError says what was found and what is expected
            yield f"{_dotted(place)}: {message.removeprefix('Value error, ')}"
        elif kind == "extra_forbidden":
            known = _node(schema, value, place[:-1]).get("properties", {})
            yield str(unknown("key", loc[-1], known, where=_dotted(place)))
        elif not (kind.endswith("_type") and place in inside):  # of another member of a union
            text = (
                f"missing {', '.join(missing[place])}"
                if kind == "missing"
                else f"found {shortened(found)}"
            )
            around = (_node(schema, value, place[:length]) for length in range(len(place), -1, -1))
            expected = next(node["description"] for node in around if node.get("description"))
            yield f"{_dotted(place)}: {text}; expected {expected}."


def _key_line(schema: Schema, value: Any, parent: tuple[Any, ...], key: Any) -> str:
    expected = _node(schema, value, parent).get("propertyNames", {}).get("description", "text")
    return f"{_dotted((*parent, key))}: found the key {shortened(key)}; expected {expected}."


def _dotted(place: tuple[Any, ...]) -> str:
    return ".".join(map(str, place)) or "top level"


def _found(value: Any, loc: Iterable[Any]) -> tuple[tuple[Any, ...], Any]:
    """Return the place that pydantic means, without the names of a union's members in it, and the
    value there.
    """
    place = []
    for part in loc:
        if (
            part in value
            if isinstance(value, Mapping)
            else isinstance(value, list) and isinstance(part, int)
        ):
            value = value[part]
            place.append(part)
    return tuple(place), value


def _node(schema: Schema, value: Any, place: tuple[Any, ...]) -> Schema:
    """Return the part of a model's JSON schema that describes a place; empty where none does."""
    nodes = _members(schema, schema, value)
    for part in place:
        value = value[part]
        inner = [child for node in nodes for child in _children(node, part)]
        nodes = [member for child in inner for member in _members(schema, child, value)]
    return nodes[0] if nodes else {}


def _members(schema: Schema, node: Schema, value: Any) -> list[Schema]:
    """Return a node with its reference resolved, then the members of a union that the value may be
    meant as.
    """
    while "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        node = {
            **schema["$defs"][name],
            **{key: part for key, part in node.items() if key != "$ref"},
        }
    options = [option for kind in OF_UNIONS for option in node.get(kind, ())]
    members = [member for option in options for member in _members(schema, option, value)]
    meant = [member for member in members if _is_meant(member, value)] or members
    described = [{**member, **node} for member in meant]
    return ([node] if "description" in node or not described else []) + described


def _is_meant(node: Schema, value: Any) -> bool:
    fixed = {
        key: part["const"] for key, part in node.get("properties", {}).items() if "const" in part
    }
    return not isinstance(value, Mapping) or all(
        value.get(key) == const for key, const in fixed.items()
    )


def _children(node: Schema, part: Any) -> Iterator[Schema]:
    if isinstance(part, int) and "items" in node:
        yield node["items"]
    elif part in (named := node.get("properties", {})):
        yield named[part]
    else:
        yield from node.get("patternProperties", {}).values()
        if isinstance(node.get("additionalProperties"), Mapping):
            yield node["additionalProperties"]
