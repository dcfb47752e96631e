"""What is wrong with a configuration as a file, with the line where there is one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from fa_audit.core.errors import AuditError, first_line, printable, shortened
from fa_audit.core.files import FOREIGN
from fa_audit.experiments.schema import plain_problems, refusal

TEMPLATES = "__use_yte__"  # with it Snakemake's reader runs expressions that the file holds


class _Loader(yaml.SafeLoader):
    """YAML of plain values, in which no key stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As in YAML's own loader; a key that stands twice is a `yaml.MarkedYAMLError` at its place."""
        seen: set[Hashable] = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode) and name.tag != "tag:yaml.org,2002:merge":
                if name.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"found '{name.value}' twice", problem_mark=name.start_mark)
                seen.add(name.value)
        return super().construct_mapping(node, deep)


def check_config_file(path: str | Path) -> None:
    """Read a configuration, JSON or YAML.

    Raises:
        AuditError: it cannot be read or is no mapping, a key stands twice in it, it is larger than anybody writes, or
            a template.
    """
    try:
        content = _parsed(Path(path).read_text(encoding="utf-8-sig"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
        raise AuditError(f"{where}: {printable(error.problem or str(error))}; expected YAML or JSON.") from error
    except OSError as error:
        raise AuditError(f"{path}: {error.strerror}; expected a file of YAML or JSON.") from error
    except (yaml.YAMLError, *FOREIGN) as error:
        raise AuditError(f"{path}: {printable(first_line(error))}; expected YAML or JSON in UTF-8.") from error
    if problems := list(plain_problems(content)):
        raise refusal(str(path), problems)
    if not isinstance(content, dict):
        raise AuditError(f"{path}: found {shortened(content)}; expected a mapping, 'settings:' and its like on top.")
    if TEMPLATES in content:
        raise AuditError(f"{path}: found '{TEMPLATES}'; expected plain YAML, without templates.")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError:
        return yaml.load(text, _Loader)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise ValueError(f"found '{name}' twice")
    return dict(pairs)
