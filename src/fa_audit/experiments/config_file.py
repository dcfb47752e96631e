"""Load a configuration, and remember the line of every value for errors."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fa_audit.core.errors import AuditError, first_line, printable, shortened
from fa_audit.core.files import FOREIGN

# Accepted spellings of numbers and flags. YAML also reads 1_0 as 10, 010 as 8, 1:30 as 90, no as
# false.
_PLAIN = {
    "int": r"[-+]?(0|[1-9]\d*)",
    "float": r"[-+]?(\d+\.\d*|\.\d+)(e[-+]?\d+)?|[-+]?\.(inf|nan)",
    "bool": "true|false",
    "timestamp": "(?!)",
}
# Largest number of values in a file. Aliases of aliases let a short YAML file have any number.
_MOST_VALUES = 100_000
_EXPECTED = "expected YAML or JSON in UTF-8"


class LineOf(dict[str, tuple[str, int]]):
    """File and line of every value: ``settings.demo.epochs`` -> ``("configs/demo.yaml", 12)``."""

    def __call__(self, place: str) -> str:
        """Return the line of a value or of the nearest entry around it that has one, such as
        ``configs/demo.yaml, line 12``; else empty.
        """
        while place and place not in self:
            place = place.rpartition(".")[0]
        return "{}, line {}".format(*self[place]) if place else ""


def load_config(path: str | Path) -> tuple[dict[str, Any], LineOf]:
    """Load a configuration, YAML or JSON, with the settings that it selects from other files.

    >>> config, line_of = load_config("config.yaml")
    >>> config["settings"]["main_audit"]["dataset"]
    'cifar10'
    >>> line_of("settings.main_audit.dataset")  # doctest: +ELLIPSIS
    'config.yaml, line ...'

    Raises:
        AuditError: the file cannot be read, or is not a mapping; a key is repeated; YAML would
            misread a value, such as ``no`` as false; a selected setting does not exist.
    """
    config, line_of = _parsed(path)
    select_settings(config, path, line_of)
    return config, line_of


def select_settings(config: dict[str, Any], path: str | Path, line_of: LineOf) -> None:
    """Fill in the settings that have a key ``select``, in place.

    ``select: FILE`` takes the setting of the same name from another file, ``select: FILE:NAME``
    takes the setting NAME. Keys beside ``select`` replace those of the selected setting; the value
    null removes a key.

    Args:
        config: as read from a file, not checked yet.
        path: path of that file. FILE lies in its folder or in one above; if `line_of` knows the
            file of a ``select``, in the folder of that one or above.
        line_of: the lines of values; receives those of the selected settings.

    Raises:
        AuditError: there is no such file, or no such setting in it.
    """
    settings = config.get("settings")
    if not isinstance(settings, dict):
        return
    parsed = cache(_parsed)
    for name, entry in settings.items():
        if not isinstance(entry, dict) or "select" not in entry:
            continue
        place = f"settings.{name}.select"
        where = f"{line_of(place) or path}: {place}"
        source, _, selected = str(entry["select"]).partition(":")
        selected = selected or str(name)
        # Several files may make up a configuration: look beside the one that says `select`.
        asking, _ = line_of.get(place, (path, 0))
        content, lines = parsed(_file_above(asking, source, where))
        known = content.get("settings")
        found = known.get(selected) if isinstance(known, dict) else None
        if not isinstance(found, dict):
            raise AuditError(f"{where}: found no setting {shortened(selected)} in {source}.")
        if "select" in found:
            raise AuditError(
                f"{where}: in {source}, {shortened(selected)} is itself selected from"
                f" {shortened(str(found['select']))}; select from that file."
            )
        whole = found | entry | {"select": None}
        settings[name] = {key: value for key, value in whole.items() if value is not None}
        prefix = f"settings.{selected}."
        for place, found_at in lines.items():
            if place.startswith(prefix):
                line_of.setdefault(f"settings.{name}.{place.removeprefix(prefix)}", found_at)


def _file_above(path: str | Path, name: str, where: str) -> str:
    for folder in Path(path).resolve().parents:
        if name and (folder / name).is_file():
            return os.path.relpath(folder / name)
    raise AuditError(f"{where}: found no file {shortened(name)} beside {path} or above.")


def typed(value: Any) -> Any:
    """Convert texts that spell numbers or flags.

    Snakemake does not convert those inside a ``--config`` mapping.
    """
    if isinstance(value, dict):
        return {key: typed(child) for key, child in value.items()}
    if isinstance(value, list):
        return list(map(typed, value))
    plain = "|".join(_PLAIN.values())
    if isinstance(value, str) and re.fullmatch(plain, value, re.IGNORECASE):
        return yaml.safe_load(value)
    return value


def _parsed(path: str | Path) -> tuple[dict[str, Any], LineOf]:
    """Return the content of a file, and the line of every value."""
    config = None
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        # YAML reads JSON, except for tabs and for numbers such as 1e-3.
        with contextlib.suppress(json.JSONDecodeError):
            config = json.loads(text)
            text = text.replace("\t", " ")
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        lines = LineOf()
        for place, line in _lines("", node):
            lines[place] = (str(path), line)
            if len(lines) > _MOST_VALUES:
                raise ValueError(f"more than {_MOST_VALUES} values")
        if config is None and node:
            config = loader.construct_document(node)
        # Half a surrogate pair, such as the escape \ud800, cannot be written to any file.
        json.dumps(config, ensure_ascii=False).encode()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}, line {mark.line + 1}, column {mark.column + 1}"
        raise AuditError(f"{where}: {printable(str(error.problem))}; {_EXPECTED}.") from error
    except OSError as error:
        raise AuditError(f"{path}: {error.strerror}; {_EXPECTED}.") from error
    except (yaml.YAMLError, *FOREIGN) as error:
        raise AuditError(f"{path}: {printable(first_line(error))}; {_EXPECTED}.") from error
    if not isinstance(config, dict):
        raise AuditError(f"{path}: found {type(config).__name__}; expected a mapping.")
    return config, lines


def _lines(place: str, node: yaml.Node | None) -> Iterator[tuple[str, int]]:
    """Yield the line of every key and item below a node.

    Raises:
        MarkedYAMLError: a key is repeated, or YAML would misread a value (`_PLAIN`).
    """
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # the loader refuses lists and mappings as keys
            _check_plain(key)
            # Keys that `<<` merges may be repeated, so they are not compared.
            if key.value == "<<":
                yield from _lines(place, value)
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"found '{key.value}' twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
            yield f"{place}{key.value}", key.start_mark.line + 1
            yield from _lines(f"{place}{key.value}.", value)
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield f"{place}{position}", item.start_mark.line + 1
            yield from _lines(f"{place}{position}.", item)
    elif isinstance(node, yaml.ScalarNode):
        _check_plain(node)


def _check_plain(node: yaml.ScalarNode) -> None:
    kind = node.tag.rpartition(":")[2]
    # A quoted scalar has a style; YAML reads it as text.
    if node.style is not None or kind not in _PLAIN:
        return
    if not re.fullmatch(_PLAIN[kind], node.value, re.IGNORECASE):
        problem = (
            f"found {node.value}, which YAML reads as {kind}; write numbers and flags like 10, 0.1"
            " or true, and put texts in quotes"
        )
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
