"""Find the files that a script runs by following its imports: their edits make its results stale."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from functools import cache
from pathlib import Path

from fa_audit.core.files import sha256_of
from fa_audit.core.source import find_module, parsed

ROOT = Path(__file__).resolve().parents[3]
PROJECT = (ROOT / "workflow_scripts", ROOT / "src")


@cache
def code_files(*entries: str) -> list[str]:
    """List the project files that `entries` import, directly or not, and the entries; paths relative to the root.

    Code outside the project is followed in the working folder and in the folders in PYTHONPATH.

    The project's own `__init__` files are left out: they hold registries and re-exports, and a method added to a
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
        waiting += _imported_files(path)
    return sorted(_shown(path) for path in found if path.name != "__init__.py" or not _is_of_project(path))


def own_code(*names: str) -> dict[str, str]:
    """Return the SHA-256 of the files outside the project that names ``package.module:Name`` import, and theirs.

    Registered names have none.
    """
    modules = [name.partition(":")[0] for name in names if ":" in name]
    return {path: _content(path) for path in code_files(*modules) if not _is_of_project(ROOT / path)}


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


def _is_of_project(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in PROJECT)


@cache
def _imported_files(path: Path) -> tuple[Path | None, ...]:
    """Return the files of the modules that a file imports anywhere; names imported from a package may be modules."""
    found: list[Path | None] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [_module_file(alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            folder = [path.parents[node.level - 1]] if node.level else None
            names = [".".join(filter(None, (node.module, *more))) for more in [(), *((a.name,) for a in node.names)]]
            found += [_module_file(name) if folder is None else find_module(name, folder) for name in names if name]
    return tuple(found)


@cache
def _module_file(name: str) -> Path | None:
    """Return the file of a module of this project or of its user, or None for everything else."""
    users = [Path(folder).resolve() for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    return find_module(name, [*PROJECT, Path.cwd(), *users])
