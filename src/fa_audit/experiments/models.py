"""The models of a configuration: what each entry means, and what can be wrong with it. Imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from fa_audit.core.errors import AuditError, unknown
from fa_audit.core.registry import ELSEWHERE, find_module
from fa_audit.data import DATASETS

DEFAULTS: dict[str, Any] = {
    "arguments": {},
    "weights": None,
    "seed": 42,
    "image_shape": None,
    "batches": 10,
    "accuracy": None,
    "frozen_accuracy": None,
    "bp_frozen_accuracy": None,
}


def model_entry(models: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """One entry with every key, defaults filled in.

    Raises:
        AuditError: there is no such model.
    """
    if name not in models:
        raise unknown("model", name, models, where="config") if models else AuditError("config: it has no models.")
    return DEFAULTS | models[name]


def model_problems(models: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What a schema cannot see: data sets that nobody registered, and callables that are not written as such."""
    for name, body in models.items():
        if body["dataset"] not in DATASETS:
            yield str(unknown("dataset", body["dataset"], DATASETS, where=f"models.{name}.dataset"))
        module, _, _ = body["model"].partition(":")
        if not ELSEWHERE.fullmatch(body["model"]):
            yield (
                f"models.{name}.model: found {body['model']!r}; expected package.module:name of what makes the model,"
                " such as torchvision.models:resnet18."
            )
        elif find_module(module, sys.path) is None:
            yield f"models.{name}.model: no file of the module '{module}' in the working folder or in PYTHONPATH."
