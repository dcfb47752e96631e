"""Resolve names to objects, importing them only when they are used."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

from fa_audit.core.errors import AuditError, OwnCodeError, first_line, unknown
from fa_audit.core.extras import naming_extras
from fa_audit.core.source import WHERE, check_call, find_module, has_name, source_of, undefined

# What functions of one's own are called with: one positional argument, and keywords.
CALLS = {"dataset": ("data_root",), "figure": ("tidy", "title", "labels", "thresholds"),
         "table": ("tidy", "title", "labels")}  # fmt: skip
ELSEWHERE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")  # package.module:Name
T = TypeVar("T")


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
        raise _own_error(kind, name, error, f". {WHERE}") from error


def call(kind: str, registry: Mapping[str, str], name: str, returns: type[T], *arguments: Any, **keywords: Any) -> T:
    """Call what a name stands for.

    Raises:
        AuditError: as of `load`; or it is not registered, and fails or returns something else than `returns`.
    """
    function = load(kind, registry, name)
    with naming_errors(kind, registry, name):
        made = function(*arguments, **keywords)
    if not isinstance(made, returns):
        expected = f"{returns.__module__}.{returns.__qualname__}"
        raise AuditError(f"{kind} '{name}': found {type(made).__name__}; expected it to return a {expected}.")
    return made


@contextlib.contextmanager
def naming_errors(kind: str, registry: Mapping[str, str], name: str, *, inside: bool = False) -> Iterator[None]:
    """Turn an exception of code that is not registered into one error that names its line.

    Args:
        inside: of exceptions whose traceback has a line of that file, alone.

    Raises:
        AuditError: the code inside this context failed.
    """
    try:
        yield
    except AuditError:
        raise
    except (Exception, SystemExit) as error:
        if name in registry or (inside and not _place(name, error)):
            raise
        raise _own_error(kind, name, error, ".") from error


def _own_error(kind: str, name: str, error: BaseException, without: str) -> OwnCodeError:
    """Return the error for a name whose code failed, ending with its line, or with `without` if it has none there."""
    return OwnCodeError(f"{kind} '{name}': {first_line(error)}{_place(name, error) or without}")


def _place(name: str, error: BaseException) -> str:
    """Return the last line of a name's file that an exception came through; empty if there is none."""
    file = os.path.abspath(str(find_module(name.partition(":")[0], sys.path)))
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" in {file}, line {lines[-1]}." if lines else ""


def entry_of(kind: str, registry: Mapping[str, str], name: str) -> str:
    """Return the entry ``package.module:Object`` of a name, which may be such an entry itself.

    Raises:
        AuditError: it is neither.
    """
    if name not in registry and not ELSEWHERE.fullmatch(name):
        hint = f" {WHERE}" if {".", ":"} & set(name) else ""
        raise AuditError(f"{unknown(kind, name, registry)}{hint}")
    return registry.get(name, name)


def check_name(kind: str, registry: Mapping[str, str], name: str) -> None:
    """Check that a name is registered, or that the file that it names has it; nothing is imported.

    Args:
        kind: a function of a file is checked as far as its source shows whether it takes the call of this kind.

    Raises:
        AuditError: it is neither, which names the nearest, or takes other arguments, or returns nothing.
    """
    entry = entry_of(kind, registry, name)
    if name in registry:
        return
    if not has_name(entry):
        raise undefined(kind, entry, source_of(entry))
    if kind in CALLS:
        check_call(entry, *CALLS[kind])
