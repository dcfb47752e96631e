"""Read of Python source what plans need of methods, networks, figures and tables: importing them would take seconds."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.util import resolve_name
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, NamedTuple

from fa_audit.core.errors import AuditError, unknown

WHERE = "Expected package.module:Name, in the working folder or in a folder in PYTHONPATH."
SOURCES = Path(__file__).resolve().parents[2]
Defined = ast.ClassDef | ast.FunctionDef
Reader = Callable[[str], dict[str, Any]]


def find_module(name: str, folders: Iterable[str | Path]) -> Path | None:
    """Return the source file of a module, searched in `folders` in order, without importing it."""
    relative = Path(*name.split("."))
    candidates = (
        Path(folder) / path for folder in folders for path in (relative.with_suffix(".py"), relative / "__init__.py")
    )
    # Not Path.is_file: it fails on names that the system finds too long.
    return next((path for path in candidates if os.path.isfile(path)), None)


class Source(NamedTuple):
    """The source of ``package.module:Name``: file, contents, and the classes and functions of the module."""

    path: Path
    tree: ast.Module
    defined: Mapping[str, Defined]


@cache
def source_of(entry: str) -> Source:
    """Find and read the source of ``package.module:Name`` without importing it.

    Raises:
        AuditError: there is no such file, or it is no Python source.
    """
    module = entry.partition(":")[0]
    path = find_module(module, [SOURCES, *sys.path, os.getcwd()])
    if path is None:
        raise AuditError(f"'{entry}': no file of the module '{module}'. {WHERE}")
    tree = parsed(path)
    return Source(path, tree, {node.name: node for node in tree.body if isinstance(node, Defined)})


def has_name(entry: str) -> bool:
    """Return whether a module defines, assigns or imports a name; ``import *`` may bring any.

    Raises:
        AuditError: as of `source_of`.
    """
    names = {found for node in ast.walk(source_of(entry).tree) for found in _names(node)}
    return bool({"*", entry.partition(":")[2]} & names)


def docstring(entry: str) -> str:
    """Return the docstring of a class or function ``package.module:Name``, or else its module's; empty without.

    Raises:
        AuditError: as of `source_of`.
    """
    source = source_of(entry)
    nodes = (source.defined.get(entry.partition(":")[2]), source.tree)
    return next(filter(None, (ast.get_docstring(node) for node in nodes if node)), "")


@cache
def arguments_of(entry: str) -> dict[str, Any]:
    """Return the arguments of a class or function ``package.module:Name`` with their defaults, read from its source.

    Those of a base class count where the class has no ``__init__``, or one that passes ``**options`` on. The default
    is `inspect.Parameter.empty` where there is none, and where it is no literal.

    Raises:
        AuditError: there is no such file, or nothing of that name is defined in it.
    """
    source = source_of(entry)
    node = _definition("class or function", entry, source)
    if isinstance(node, ast.FunctionDef):
        return _defaults(node.args)
    init = next((part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)
    inherited = {} if init and not init.args.kwarg else _from_bases(arguments_of, entry, source, node)
    return inherited | (dict([*_defaults(init.args).items()][1:]) if init else {})  # without self


@cache
def class_literals(entry: str) -> dict[str, Any]:
    """Return the class attributes that ``package.module:Class`` assigns as literals, read from its source.

    The workflow plans with them; importing every method would cost it seconds. Inherited ones are followed to bases of
    the same file and to those that it imports by ``from module import Base``.

    Raises:
        AuditError: there is no such file or no such class in it.
    """
    source = source_of(entry)
    node = _definition("class", entry, source)
    if not isinstance(node, ast.ClassDef):
        raise AuditError(f"'{entry}': found a function; expected a class.")
    return _from_bases(class_literals, entry, source, node) | dict(_literals(node.body))


def check_call(entry: str, first: str, *keywords: str) -> None:
    """Check, by its source, that a function ``package.module:name`` takes such a call and returns something.

    What is no function of that module, and one that a decorator may have changed, is not checked.

    Args:
        first: what it is given as its only positional argument.

    Raises:
        AuditError: there is no such file, or the function takes other arguments, or never returns a value.
    """
    node = source_of(entry).defined.get(entry.partition(":")[2])
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return
    try:
        parameters = sorted(_parameters(node.args, lambda _: None), key=lambda parameter: parameter.kind)
        Signature(parameters).bind(first, **dict.fromkeys(keywords))
    except TypeError as error:
        given = ", ".join([first, *(f"{word}=..." for word in keywords)])
        raise AuditError(f"'{entry}': {error}; it is called as {node.name}({given}).") from error
    returned = [part.value for part in ast.walk(node) if isinstance(part, ast.Return)]
    if all(value is None or isinstance(value, ast.Constant) for value in returned):
        raise AuditError(f"'{entry}': found no return with a value; expected it to return what it makes.")


def _definition(kind: str, entry: str, source: Source) -> Defined:
    name = entry.partition(":")[2]
    if name not in source.defined:
        raise undefined(kind, entry, source)
    return source.defined[name]


def undefined(kind: str, entry: str, source: Source) -> AuditError:
    """Return the error for a name that a module does not define, with the nearest of those that it does."""
    return unknown(f"{kind} of {source.path.name}", entry.partition(":")[2], source.defined, where=f"'{entry}'")


def _from_bases(read: Reader, entry: str, source: Source, node: ast.ClassDef) -> dict[str, Any]:
    """Return what `read` finds of a class's bases, the first one last; those without a file have nothing."""
    module = entry.partition(":")[0]
    places = _imported(source, module) | dict.fromkeys(source.defined, module)
    inherited: dict[str, Any] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name) and base.id in places:
            with contextlib.suppress(AuditError):  # a base that is no file, or only passed on by that module
                inherited |= read(f"{places[base.id]}:{base.id}")
    return inherited


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file of Python source; other contents are an error."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"), path.name)
    except (SyntaxError, ValueError) as error:
        raise AuditError(f"{path} is no Python source ({error}).") from error


def _imported(source: Source, module: str) -> dict[str, str]:
    """Map the names that a module imports by ``from module import name`` to the module."""
    package = module if source.path.stem == "__init__" else module.rpartition(".")[0]
    statements = [node for node in source.tree.body if isinstance(node, ast.ImportFrom) and node.module]
    found = {}
    for node in statements:
        with contextlib.suppress(ImportError):  # a relative import outside of a package
            place = resolve_name("." * node.level + str(node.module), package)
            found |= {alias.name: place for alias in node.names if not alias.asname}
    return found


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement defines, assigns or imports."""
    if isinstance(node, Defined):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)


def _defaults(arguments: ast.arguments) -> dict[str, Any]:
    """Return the arguments of a function, but ``*args`` and ``**options``, each with its default."""
    collected = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return {found.name: found.default for found in _parameters(arguments, _literal) if found.kind not in collected}


def _parameters(arguments: ast.arguments, value_of: Callable[[ast.expr], Any]) -> Iterator[Parameter]:
    """Yield the parameters of a function, those with a default with the value of its expression."""
    positional = [*arguments.posonlyargs, *arguments.args]
    kinds = [Parameter.POSITIONAL_ONLY] * len(arguments.posonlyargs)
    kinds += [Parameter.POSITIONAL_OR_KEYWORD] * len(arguments.args)
    kinds += [Parameter.KEYWORD_ONLY] * len(arguments.kwonlyargs)
    missing = len(positional) - len(arguments.defaults)
    defaults = [*[None] * missing, *arguments.defaults, *arguments.kw_defaults]
    for argument, kind, default in zip([*positional, *arguments.kwonlyargs], kinds, defaults, strict=True):
        yield Parameter(argument.arg, kind, default=Parameter.empty if default is None else value_of(default))
    rest = {Parameter.VAR_POSITIONAL: arguments.vararg, Parameter.VAR_KEYWORD: arguments.kwarg}
    yield from (Parameter(argument.arg, kind) for kind, argument in rest.items() if argument)


def _literal(node: ast.expr) -> Any:
    with contextlib.suppress(ValueError, TypeError):
        return ast.literal_eval(node)
    return Parameter.empty


def _literals(body: list[ast.stmt]) -> Iterable[tuple[str, Any]]:
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from ((target.id, statement.value.value) for target in targets if isinstance(target, ast.Name))
