"""Import objects by their registered names or by ``package.module:Name``, when they are used."""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from fa_audit.core.errors import AuditError, OwnCodeError, first_line, unknown

_WHERE = "Expected package.module:Name, in the working folder or in a folder in PYTHONPATH."
# Arguments of user-defined functions: a positional argument, then keywords.
_CALLS = {"dataset": ("data_root",), "figure": ("tidy", "title", "labels", "thresholds"),
         "table": ("tidy", "title", "labels")}  # fmt: skip
ELSEWHERE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")  # package.module:Name
T = TypeVar("T")


def find_module(name: str, folders: Iterable[str | Path]) -> Path | None:
    """Return the source file of a module, searched in `folders` in order, without importing it."""
    relative = Path(*name.split("."))
    files = relative.with_suffix(".py"), relative / "__init__.py"
    candidates = (Path(folder) / file for folder in folders for file in files)
    # Path.is_file would raise for names that are too long for the system.
    return next(filter(os.path.isfile, candidates), None)


def load(kind: str, registry: Mapping[str, str], name: str) -> Any:
    """Import an object by its registered name, or by ``package.module:Object``.

    Raises:
        AuditError: `name` is not registered (the message lists those that are), or cannot be
            imported, for instance because an extra is not installed.
    """
    entry = entry_of(kind, registry, name)
    module, _, attribute = entry.partition(":")
    # The working folder comes last, so that its files shadow no installed package.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    with naming_errors(kind, registry, name, elsewhere=f". {_WHERE}"), naming_extras():
        found = import_module(module)
    if not hasattr(found, attribute):
        known = []
        for member, value in vars(found).items():
            # Data, such as a list of batches, have no `__module__`.
            here = getattr(value, "__module__", module) == module
            if here and not member.startswith("_") and not inspect.ismodule(value):
                known.append(member)
        raise unknown(f"{kind} of {module}", attribute, known, where=f"'{entry}'")
    return getattr(found, attribute)


def documentation(kind: str, registry: Mapping[str, str], name: str) -> str:
    """Return the docstring of a named object, or else of its module; empty if neither has one.

    Raises:
        AuditError: as for `load`.
    """
    found = load(kind, registry, name)
    return inspect.cleandoc(found.__doc__ or sys.modules[found.__module__].__doc__ or "")


def call(
    kind: str,
    registry: Mapping[str, str],
    name: str,
    returns: type[T],
    *arguments: Any,
    **keywords: Any,
) -> T:
    """Load a named function, call it, and check the type of what it returns.

    Raises:
        AuditError: as `load`; or a user-defined function fails, or the function does not return
            an instance of `returns`.
    """
    function = load(kind, registry, name)
    with naming_errors(kind, registry, name):
        made = function(*arguments, **keywords)
    if not isinstance(made, returns):
        expected = f"{returns.__module__}.{returns.__qualname__}"
        raise AuditError(
            f"{kind} '{name}': found {type(made).__name__}; expected it to return a {expected}."
        )
    return made


@contextmanager
def naming_errors(
    kind: str,
    registry: Mapping[str, str],
    name: str,
    *,
    inside: bool = False,
    elsewhere: str = ".",
) -> Iterator[None]:
    """Turn an exception in a user's own code into one error that names the line.

    Args:
        inside: turn only exceptions whose traceback passes through the file of `name`.
        elsewhere: the end of the message if the traceback does not pass through that file.

    Raises:
        AuditError: the user's code failed. All other exceptions are raised unchanged.
    """
    try:
        yield
    except AuditError:
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        place = _place(name, error)
        if name in registry or (inside and not place):
            raise
        raise OwnCodeError(f"{kind} '{name}': {first_line(error)}{place or elsewhere}") from error


def _place(name: str, error: BaseException) -> str:
    """Return where an exception last passed through the file of `name`; empty if nowhere."""
    file = os.path.abspath(str(find_module(name.partition(":")[0], sys.path)))
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == file:
            place = f" in {file}, line {frame.lineno}."
    return place


def entry_of(kind: str, registry: Mapping[str, str], name: str) -> str:
    """Return the ``package.module:Object`` that a registered name stands for, or `name` itself.

    Raises:
        AuditError: `name` is neither registered nor of that form.
    """
    if name not in registry and not ELSEWHERE.fullmatch(name):
        hint = f" {_WHERE}" if {".", ":"} & set(name) or not registry else ""
        raise AuditError(f"{unknown(kind, name, registry)}{hint}")
    return registry.get(name, name)


def check_function(kind: str, registry: Mapping[str, str], name: str) -> None:
    """Check that a function is registered, or can be imported and takes the arguments in `_CALLS`.

    Raises:
        AuditError: as `load`; or the function takes other arguments.
    """
    if name in registry:
        return
    function, (first, *keywords) = load(kind, registry, name), _CALLS[kind]
    try:
        inspect.signature(function, follow_wrapped=False).bind(first, **dict.fromkeys(keywords))
    except (TypeError, ValueError) as error:
        given = ", ".join([first, *(f"{word}=..." for word in keywords)])
        raise AuditError(
            f"'{name}': {error}; it is called as {name.partition(':')[2]}({given})."
        ) from error


EXTRAS = {  # package -> the extra that installs it
    "matplotlib": "plots",
    "pandas": "plots",
    "scipy": "plots",
    "yaml": "plots",
    "jinja2": "report",
    "accelerate": "transformers",
    "transformers": "transformers",
    "sklearn": "datasets",
    "torchvision": "datasets",
    "argcomplete": "completion",
    "lightning": "lightning",
}
# Words of the operating system's error -> the limit to increase.
_LIMITS = {
    "failed to map": "memory (`ulimit -v`, or the memory of the batch job)",
    "Too many open files": "open files (`ulimit -n`)",
}


@contextmanager
def naming_extras() -> Iterator[None]:
    """Turn a failed import into an error that names the missing extra, or the limit to increase.

    Raises:
        AuditError: an optional package is not installed, or a limit of the system is reached.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise AuditError(
            f"'{package}' is not installed. Run: pip install 'fa-audit[{EXTRAS[package]}]'"
        ) from error
    except (ImportError, OSError) as error:
        # An import that exceeds a system limit fails with an error of the linker.
        for words, limit in _LIMITS.items():
            if words in str(error):
                raise AuditError(f"{error}; raise the limit of {limit}.") from error
        raise
