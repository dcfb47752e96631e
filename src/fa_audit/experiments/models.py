"""The external models of a configuration. Imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from fa_audit.core.errors import AuditError, unknown
from fa_audit.core.registry import ELSEWHERE, find_module
from fa_audit.core.validation import validated
from fa_audit.data import DATASETS
from fa_audit.experiments.config import ModelEntry


def model_entry(models: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return one entry with every key, defaults filled in.

    Raises:
        AuditError: there is no such model, or its entry is wrong.
    """
    if name not in models:
        raise unknown("model", name, models, where="config") if models else AuditError("config: it has no models.")
    return validated(ModelEntry, models[name], f"models.{name}").model_dump()


def model_problems(models: Mapping[str, ModelEntry]) -> Iterator[str]:
    """Yield unknown data sets, and callables that are not written as such or whose module is not found."""
    for name, entry in models.items():
        if entry.dataset not in DATASETS:
            yield str(unknown("dataset", entry.dataset, DATASETS, where=f"models.{name}.dataset"))
        module, _, _ = entry.model.partition(":")
        if not ELSEWHERE.fullmatch(entry.model):
            yield (
                f"models.{name}.model: found {entry.model!r}; expected package.module:name of what makes the model,"
                " such as torchvision.models:resnet18."
            )
        elif find_module(module, sys.path) is None:
            yield f"models.{name}.model: no file of the module '{module}' in the working folder or in PYTHONPATH."
