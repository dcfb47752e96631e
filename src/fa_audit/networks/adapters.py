"""Adapt models and batches that are not one tensor in, logits out: wrappers of torch, and mappings
of tensors.
"""

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
        own = next(
            (p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32
        )
        sizes = [int(torch.Size(shape).numel()) for shape, _ in self.layout.values()]
        for (name, (shape, kind)), columns in zip(self.layout.items(), x.split(sizes, dim=1)):
            yield name, columns.reshape(-1, *shape).to(own if kind.is_floating_point else kind)


def layout_of(batch: Mapping[str, Any]) -> Layout:
    """Return how a mapping of tensors becomes one tensor, without its labels.

    Raises:
        AuditError: it has no labels, or an entry is not a tensor.
    """
    label = next((name for name in LABELS if name in batch), None)
    found = ", ".join(f"{name}: {type(value).__name__}" for name, value in batch.items())
    if label is None or not all(
        isinstance(value, Tensor) and value.dim() for value in batch.values()
    ):
        raise AuditError(
            f"eval_batches: found a mapping ({found}); expected tensors, one of them under {LABELS[0]!r}."
        )
    return {
        name: (tuple(batch[name].shape[1:]), batch[name].dtype)
        for name in sorted(batch)
        if name != label
    }


def as_pair(batch: Any) -> Any:
    """Return a mapping as a pair of one tensor and its labels; anything else as it is."""
    if not isinstance(batch, Mapping):
        return batch
    columns = [batch[name].reshape(len(batch[name]), -1).double() for name in layout_of(batch)]
    return torch.cat(columns, dim=1), next(batch[name] for name in LABELS if name in batch)
