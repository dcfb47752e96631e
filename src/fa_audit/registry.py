"""Names to classes, without importing torch before a class is really needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from fa_audit.errors import AuditError, unknown


def load(kind: str, registry: Mapping[str, str], name: str) -> Any:
    """The object that `registry` names as ``package.module:Object``, or that `name` itself names so.

    Raises:
        AuditError: `name` is not registered (the message lists the names that are), or cannot be imported.
    """
    if name not in registry and ":" not in name:
        raise unknown(kind, name, registry)
    module, _, attribute = registry.get(name, name).partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        if name in registry:
            raise
        raise AuditError(
            f"{kind} '{name}': {error}. Expected package.module:ClassName, importable from the working folder"
            " or from a folder in PYTHONPATH."
        ) from error
