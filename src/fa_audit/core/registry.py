"""Resolve names to classes, importing them only when they are used."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from fa_audit.core.errors import AuditError, first_line, unknown
from fa_audit.core.extras import naming_extras

ELSEWHERE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")  # package.module:ClassName
WHERE = "Expected package.module:ClassName, in the working folder or in a folder in PYTHONPATH."


def load(kind: str, registry: Mapping[str, str], name: str) -> Any:
    """Import the object that `registry` names as ``package.module:Object``, or that `name` itself names in this form.

    Raises:
        AuditError: `name` is not registered (the message lists the names that are), or cannot be imported, as where
            it needs an extra that is not installed.
    """
    entry = entry_of(kind, registry, name)
    module, _, attribute = entry.partition(":")
    try:
        with naming_extras():
            return getattr(import_module(module), attribute)
    except AuditError:
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        if name in registry:
            raise
        raise AuditError(f"{kind} '{name}': {first_line(error)}. {WHERE}") from error


def entry_of(kind: str, registry: Mapping[str, str], name: str) -> str:
    """Return the entry ``package.module:Object`` of a name, which may be such an entry itself.

    Raises:
        AuditError: it is neither.
    """
    if name not in registry and not ELSEWHERE.fullmatch(name):
        raise unknown(kind, name, registry)
    return registry.get(name, name)


def find_module(name: str, folders: Iterable[str | Path]) -> Path | None:
    """Return the source file of a module, searched in `folders` in order, without importing it."""
    relative = Path(*name.split("."))
    candidates = (
        Path(folder) / path for folder in folders for path in (relative.with_suffix(".py"), relative / "__init__.py")
    )
    # Not Path.is_file: it fails on names that the system finds too long.
    return next((path for path in candidates if os.path.isfile(path)), None)


@cache
def class_literals(entry: str) -> dict[str, Any]:
    """Return the class attributes that ``package.module:Class`` assigns as literals, read from its source.

    The workflow plans with them; importing every method would cost it seconds. Inherited ones are followed to bases of
    the same file and to those that it imports by ``from module import Base``.

    Raises:
        AuditError: there is no such file or no such class in it.
    """
    module, _, name = entry.partition(":")
    path = find_module(module, [Path(__file__).resolve().parents[1], *sys.path])
    if path is None:
        raise AuditError(f"'{entry}': no file of the module '{module}'. {WHERE}")
    tree = parsed(path)
    classes = {statement.name: statement for statement in tree.body if isinstance(statement, ast.ClassDef)}
    if name not in classes:
        raise AuditError(
            f"'{entry}': no class '{name}' in the module '{module}'; it has: {', '.join(classes) or 'none'}."
        )
    places = _imported(tree) | dict.fromkeys(classes, module)
    inherited: dict[str, Any] = {}
    for base in reversed(classes[name].bases):
        if isinstance(base, ast.Name) and base.id in places:
            with contextlib.suppress(AuditError):  # a base that is no file, or only passed on by that module
                inherited |= class_literals(f"{places[base.id]}:{base.id}")
    return inherited | dict(_literals(classes[name].body))


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file of Python source; other contents are an error."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise AuditError(f"{path} is no Python source ({error}).") from error


def _imported(tree: ast.Module) -> dict[str, str]:
    """Map the names that a module imports by ``from module import name`` to the module."""
    statements = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {alias.name: node.module for node in statements for alias in node.names if not alias.asname}


def _literals(body: list[ast.stmt]) -> Iterable[tuple[str, Any]]:
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from ((target.id, statement.value.value) for target in targets if isinstance(target, ast.Name))
