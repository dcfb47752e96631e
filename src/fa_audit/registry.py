"""Names to classes, without importing torch before a class is really needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from fa_audit.errors import unknown


def load(kind: str, registry: Mapping[str, str], name: str) -> Any:
    """The object that `registry` names as ``package.module:Object``.

    Raises:
        AuditError: `name` is not registered; the message lists the names that are.
    """
    if name not in registry:
        raise unknown(kind, name, registry)
    module, _, attribute = registry[name].partition(":")
    return getattr(import_module(module), attribute)
