"""Adapt models and batches that are not "one tensor in, logits out"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError

LABELS = ("labels", "label", "targets", "y")  # keys of a mapping, the first that it has
WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]  # by name, the shape of a row and the type


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module that `DataParallel`, `DistributedDataParallel` or `torch.compile` wrap."""
    inner = model.module if isinstance(model, WRAPPERS) else getattr(model, "_orig_mod", None)
    return unwrapped(inner) if isinstance(inner, nn.Module) else model


class OneTensor(nn.Module):
    """Call a model with the parts of one tensor, by name.

    Attributes:
        model: takes the parts.
        layout: where the parts are in a float64 tensor ``(B, columns)``, which holds integers
            exactly.
    """

    def __init__(self, model: nn.Module, layout: Layout) -> None:
        super().__init__()
        self.model, self.layout = model, layout

    def forward(self, x: Tensor) -> Any:
        return self.model(**dict(self.parts(x)))

    def parts(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield the parts of `x` by name, floating-point ones in the precision of the model."""
        kinds = [p.dtype for p in self.model.parameters() if p.is_floating_point()]
        own = kinds[0] if kinds else torch.float32
        start = 0
        for name, (shape, kind) in self.layout.items():
            columns = x[:, start : start + torch.Size(shape).numel()]
            start += columns.shape[1]
            yield name, columns.reshape(-1, *shape).to(own if kind.is_floating_point else kind)


def layout_of(batch: Mapping[str, Any]) -> Layout:
    """Lay out a mapping of tensors, without its labels, as the columns of one tensor.

    Raises:
        AuditError: it has no labels, or an entry is not a tensor.
    """
    label = _label_of(batch)
    tensors = all(isinstance(value, Tensor) and value.dim() for value in batch.values())
    if label is None or not tensors:
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
    return torch.cat(columns, dim=1), batch[_label_of(batch) or LABELS[0]]


def _label_of(batch: Mapping[str, Any]) -> str | None:
    return next((name for name in LABELS if name in batch), None)
