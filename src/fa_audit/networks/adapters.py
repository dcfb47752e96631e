"""Adapt models and batches that are not "one tensor in, logits out"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError

LABELS = ("labels", "label", "targets", "y")  # keys of a mapping, the first that it has
Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]  # by name, the shape of a row and the type


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module that `DataParallel`, `DistributedDataParallel`, `torch.compile` or
    `OneTensor` wrap.
    """
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel, OneTensor)
    inner = model.module if isinstance(model, wrappers) else getattr(model, "_orig_mod", None)
    return unwrapped(inner) if isinstance(inner, nn.Module) else model


class OneTensor(nn.Module):
    """Call a model with the parts of one tensor, by name.

    Attributes:
        module: takes the parts.
        layout: where the parts are in a float64 tensor ``(B, columns)``, which holds integers
            exactly.
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        super().__init__()
        self.module, self.layout = module, layout

    def forward(self, x: Tensor) -> Any:
        return self.module(**self.parts(x))

    def parts(self, x: Tensor) -> dict[str, Tensor]:
        """Return the parts of `x` by name, floating-point ones in the precision of the model."""
        kinds = [p.dtype for p in self.module.parameters() if p.is_floating_point()]
        own = kinds[0] if kinds else torch.float32
        columns = x.split([torch.Size(shape).numel() for shape, _ in self.layout.values()], dim=1)
        parts = {}
        for part, (name, (shape, kind)) in zip(columns, self.layout.items()):
            parts[name] = part.reshape(-1, *shape).to(own if kind.is_floating_point else kind)
        return parts


def layout_of(batch: Mapping[str, Any]) -> Layout:
    """Lay out a mapping of tensors, without its labels, as the columns of one tensor.

    Raises:
        AuditError: it has no labels, or an entry is not a tensor.
    """
    label = _label_of(batch)
    tensors = all(isinstance(value, Tensor) and value.dim() for value in batch.values())
    if not label or not tensors:
        found = ", ".join(f"{name}: {type(value).__name__}" for name, value in batch.items())
        raise AuditError(
            f"eval_batches: found a mapping ({found}); expected tensors, one of them under"
            f" {LABELS[0]!r}."
        )
    layout = {}
    # Batches may name their entries in another order.
    for name in sorted(batch):
        if name != label:
            layout[name] = tuple(batch[name].shape[1:]), batch[name].dtype
    return layout


def as_pair(batch: Any) -> Any:
    """Turn a mapping into one tensor and its labels; return anything else unchanged."""
    if not isinstance(batch, Mapping):
        return batch
    columns = [batch[name].reshape(len(batch[name]), -1).double() for name in layout_of(batch)]
    return torch.cat(columns, dim=1), batch[_label_of(batch)]


def _label_of(batch: Mapping[str, Any]) -> str:
    return next((name for name in LABELS if name in batch), "")
