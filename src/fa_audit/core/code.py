"""Find the files that a script runs by following its imports: their edits make its results stale."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from functools import cache
from pathlib import Path

from fa_audit.core.files import sha256_of
from fa_audit.core.registry import find_module, parsed

ROOT = Path(__file__).resolve().parents[3]
PROJECT = (ROOT / "workflow_scripts", ROOT / "src")


@cache
def code_files(*entries: str) -> list[str]:
    """List the project files that `entries` import, directly or not, and the entries; paths relative to the root.

    A method outside the project is followed in the working folder and in the folders in PYTHONPATH.

    Package `__init__` files are left out: they hold registries and re-exports, and a method added to a
    registry must not retrain the others.

    Args:
        entries: script paths relative to the root (``workflow_scripts/train.py``) or modules
            (``fa_audit.methods.dfa``).
    """
    waiting = [ROOT / entry if entry.endswith(".py") else _module_file(entry) for entry in entries]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path is None or path in found:
            continue
        found.add(path)
        waiting += map(_module_file, _imports(path))
    return sorted(_shown(path) for path in found if path.name != "__init__.py")


@cache
def code_digest(*entries: str) -> str:
    """Return one digest of the contents of all files that `code_files` finds, and the entries.

    A job's parameter: some thirty input files for each of ten thousand runs would make planning them slow.
    """
    return " ".join([digest_of(sorted(_content(path) for path in code_files(*entries))), *entries])


def digest_of(value: object) -> str:
    """Return a short digest of a value of JSON types."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@cache
def _content(path: str) -> str:
    return sha256_of(ROOT / path)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


@cache
def _imports(path: Path) -> tuple[str, ...]:
    """List the modules that a file imports anywhere; names imported from a package may be modules too."""
    names: list[str] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(names)


@cache
def _module_file(name: str) -> Path | None:
    """Return the file of a module of this project or of its user, or None for everything else."""
    users = [Path(folder).resolve() for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    return find_module(name, [*PROJECT, Path.cwd(), *users])
