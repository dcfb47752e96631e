"""Measure one thing at a time: the functions of the paper's four-check package."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.audit.diagnose import as_rows, check_layer, prepared
from fa_audit.audit.diagnostics import Batch, mean_gradient
from fa_audit.core.errors import AuditError
from fa_audit.core.metrics import mean_pairwise_cosine, median_norm
from fa_audit.networks.trace import Description, LossFunction, outputs_of, reference, untouched


def residual_norms(model: nn.Module, x: Tensor, *, description: Description | None = None) -> list[float]:
    """Return the median over the batch of ``||h_l||`` for l = 0..L.

    Args:
        model, description: as in `fa_audit.diagnose`.
        x: a batch of inputs.

    Raises:
        AuditError: as `fa_audit.diagnose`.
    """
    x = as_rows("x", x)
    given = {"x": [(x, torch.zeros(len(x), dtype=torch.int64))]}
    with prepared(model, given, description) as (network, [[(x, _)]], _), untouched(network):
        return [median_norm(h) for h in outputs_of(network, x)[1]]


def bp_grad_norms(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    loss_fn: LossFunction = F.cross_entropy,
    *,
    description: Description | None = None,
) -> list[float]:
    """Return the median over the batch of ``||dL/dh_l||`` for l = 0..L; L is the loss of the batch.

    Args:
        model, loss_fn, description: as in `fa_audit.diagnose`.
        x, y: a batch of inputs and their labels.

    Raises:
        AuditError: as `fa_audit.diagnose`.
    """
    given = {"x and y": [(as_rows("x", x), as_rows("y", y))]}
    with prepared(model, given, description, loss_fn) as (network, [[batch]], _), untouched(network):
        return [median_norm(g) for g in reference(network, *batch, loss_fn).gradients]


def cross_batch_direction_stability(
    model: nn.Module,
    eval_batches: Iterable[Batch],
    layer_index: int,
    loss_fn: LossFunction = F.cross_entropy,
    *,
    description: Description | None = None,
) -> float:
    """Return the mean pairwise cosine between the batches' mean gradients at ``h_l``.

    The paper's limit of 0.30 is calibrated for 8 or more batches of about 128 samples.

    Args:
        model, loss_fn, description: as in `fa_audit.diagnose`.
        eval_batches: disjoint batches of inputs and labels; all are used.
        layer_index: l, 0..L.

    Raises:
        AuditError: as `fa_audit.diagnose`; or fewer than two batches, or fewer with a finite, non-zero mean gradient.
    """
    given = {"eval_batches": eval_batches}
    with prepared(model, given, description, loss_fn, limit=None) as (network, [batches], _), untouched(network):
        check_layer("layer_index", layer_index, network)
        means = [mean_gradient(reference(network, *batch, loss_fn), layer_index) for batch in batches]
    measured = mean_pairwise_cosine(means)
    if measured.value is None:
        raise AuditError(f"eval_batches: the stability between batches {measured.reason}.")
    return measured.value
