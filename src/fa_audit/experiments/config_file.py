"""Load a configuration, and know the line of everything in it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from fa_audit.core.errors import AuditError, first_line, printable
from fa_audit.core.files import FOREIGN

# Texts that YAML reads as seconds, in base 8, or as true or false: 1:30, 010, no.
MISREAD = re.compile(r"[-+]?\d+(:[0-5]?\d)+(\.\d*)?|[-+]?0[0-7]+|yes|no|on|off", re.IGNORECASE)
EXPECTED = "expected YAML or JSON"


@dataclass(frozen=True)
class LineOf:
    """The file and line of every value of a configuration.

    Attributes:
        places: ``settings.demo.epochs`` -> (``configs/demo.yaml, line 12``, the value there).
    """

    places: Mapping[str, tuple[str, Any]] = field(default_factory=dict)

    def __call__(self, place: str) -> str:
        """Return the line of a value or of the innermost mapping around it that has one; empty
        without any.
        """
        while place and place not in self.places:
            place = place.rpartition(".")[0]
        return self.places[place][0] if place else ""

    def __or__(self, other: LineOf) -> LineOf:
        """Return the lines of two files, the second of which is merged into the first."""
        return LineOf({**self.places, **other.places})

    def within(self, config: Any) -> LineOf:
        """Return the lines of the values that a configuration still has; ``--config`` may have
        changed the others.
        """
        now = dict(_values("", config))
        kept = {
            place for place, (_, old) in self.places.items() if now.get(place) == old or old != old
        }  # NaN
        return LineOf({place: self.places[place] for place in kept})


def load_config(path: str | Path) -> tuple[dict[str, Any], LineOf]:
    """Load a configuration, YAML or JSON, in which no key is repeated.

    >>> config, line_of = load_config("config.yaml")
    >>> config["settings"]["main_audit"]["dataset"]
    'cifar10'
    >>> line_of("settings.main_audit.dataset")
    'config.yaml, line 18'

    Raises:
        AuditError: as for `parsed`; or a key is repeated, or YAML reads something other than what
            is written.
    """
    config, loader, node = parsed(path)
    with _refused(path):
        lines = dict(_lines("", node))
        config = config or loader.construct_document(node)
    values = dict(_values("", config))
    return config, LineOf(
        {place: (f"{path}, line {line}", values.get(place)) for place, line in lines.items()}
    )


def parsed(path: str | Path) -> tuple[dict[str, Any], yaml.SafeLoader, yaml.MappingNode]:
    """Parse YAML or JSON as every program reads it; keys may be repeated.

    Returns:
        the content, if it is JSON; the loader; its node, not yet constructed, which has the lines.

    Raises:
        AuditError: the file cannot be read, or is not a mapping.
    """
    config = {}
    with _refused(path):
        text = Path(path).read_text(encoding="utf-8-sig")
        with contextlib.suppress(json.JSONDecodeError):  # JSON is YAML, but for tabs and for 1e-3
            config, text = json.loads(text), text.replace("\t", " ")
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
    if not isinstance(node, yaml.MappingNode):
        found = f"a {node.id}" if node else "an empty file"
        raise AuditError(
            f"{path}: found {found}; expected a mapping, 'settings:' and the like on top."
        )
    return config, loader, node


@contextlib.contextmanager
def _refused(path: str | Path) -> Iterator[None]:
    """Turn what keeps a file from being read (missing, another encoding, not YAML) into an error of
    one line.
    """
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark, begun = error.problem_mark, error.context_mark
        where = f"{path}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
        inside = f" ({error.context}, from line {begun.line + 1})" if begun else ""
        problem = f"{error.problem or error}{inside}; {error.note or EXPECTED}."
        raise AuditError(f"{where}: {printable(problem)}") from error
    except UnicodeDecodeError as error:
        where, byte = _at(path, error.object[: error.start]), error.object[error.start]
        raise AuditError(
            f"{where}: found the byte 0x{byte:02x}; {EXPECTED} in UTF-8. Save it as UTF-8."
        ) from error
    except ReaderError as error:
        where = _at(path, Path(path).read_text(encoding="utf-8-sig")[: error.position].encode())
        raise AuditError(
            f"{where}: found the character 0x{error.character:02x}; {EXPECTED}."
        ) from error
    except OSError as error:
        raise AuditError(f"{path}: {error.strerror}; expected a file of YAML or JSON.") from error
    except (yaml.YAMLError, *FOREIGN) as error:
        raise AuditError(f"{path}: {printable(first_line(error))}; {EXPECTED}.") from error


def _at(path: str | Path, before: bytes) -> str:
    return f"{path}, line {before.count(10) + 1}, column {len(before) - before.rfind(10)}"


def _lines(place: str, node: yaml.Node | None) -> Iterator[tuple[str, int]]:
    """Yield the line of every key and item below a node; a repeated or misread one raises
    `MarkedYAMLError`.
    """
    if _is_misread(node):
        raise _misread(node)
    seen = set()
    for position, child in enumerate(node.value if isinstance(node, yaml.CollectionNode) else ()):
        key, value = child if isinstance(node, yaml.MappingNode) else (child, child)
        name = key.value if isinstance(node, yaml.MappingNode) else position
        if isinstance(key, yaml.ScalarNode) and name in seen and name != "<<":
            problem, note = f"found '{name}' twice", "keep one of them"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark, note=note)
        if key is not value and (_is_misread(key) or key.tag.endswith(("bool", "null"))):
            raise _misread(key)
        if isinstance(name, str | int):
            seen.add(name)
            yield f"{place}{name}", key.start_mark.line + 1
            yield from _lines(f"{place}{name}.", value)


def _is_misread(node: yaml.Node | None) -> bool:
    plain = isinstance(node, yaml.ScalarNode) and node.style is None
    return plain and (node.tag.endswith("timestamp") or bool(MISREAD.fullmatch(node.value)))


def _misread(node: yaml.ScalarNode) -> yaml.MarkedYAMLError:
    read = "a date" if node.tag.endswith("timestamp") else json.dumps(yaml.safe_load(node.value))
    problem = f"found {node.value}, which YAML reads as {read}"
    note = f"write '{node.value}' if you mean a text, or {read}"
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark, note=note)


def _values(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value below a mapping or a list, with its place."""
    children = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in children:
        yield f"{place}{key}", child
        yield from _values(f"{place}{key}.", child)
