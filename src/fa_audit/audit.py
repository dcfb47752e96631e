"""The audit of a run of this package: the protocol on its network, and its credits against the true gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from fa_audit.data import Dataset, evaluation_batches
from fa_audit.learner import Learner
from fa_audit.metrics import Measured, clamped_cosine, cosine
from fa_audit.protocol import DiagnosticReport, Thresholds, diagnose
from fa_audit.protocol.doors import BATCH_SIZE, BATCHES
from fa_audit.trace import reference, untouched
from fa_audit.training import block_credits


def audit(
    learner: Learner,
    dataset: Dataset,
    accuracy: float | None,
    *,
    own_frozen: tuple[str, float] | None = None,
    bp_frozen_acc: float | None = None,
    thresholds: Thresholds | None = None,
    name: str = "",
) -> DiagnosticReport:
    """Audit a trained run.

    Args:
        learner: network and method, as loaded from a checkpoint.
        dataset: on the learner's device.
        accuracy: on the whole test set after the last epoch.
        own_frozen: name and accuracy of the method's own frozen baseline.
        bp_frozen_acc: accuracy of backpropagation's frozen baseline.
    """
    batches = evaluation_batches(dataset, BATCH_SIZE, BATCHES)
    own_name, own_acc = own_frozen or ("own frozen baseline", None)
    report = diagnose(
        learner.network,
        batches,
        accuracy,
        own_acc,
        method_name=name or learner.spec.method,
        thresholds=thresholds,
        bp_frozen_acc=bp_frozen_acc,
        frozen_baseline_name=own_name,
    )
    return replace(report, credit=credit_alignment(learner, *batches[0]))


def credit_alignment(learner: Learner, x: torch.Tensor, labels: torch.Tensor) -> tuple[dict[str, Measured], ...]:
    """Per block, how the credit ``a_l`` is aligned with backpropagation's gradient.

    ``cosine`` compares it with ``g_l`` at the block's input, which is what published numbers do, without any
    epsilon; ``clamped_cosine`` is torch's value of the same; ``cosine_at_output`` compares it with ``g_{l+1}``,
    the true gradient of the block's output.
    """
    with untouched(learner.network):
        g = reference(learner.network, x, labels).gradients
        credits = block_credits(learner, x, labels)
    return tuple(
        {
            "cosine": cosine(a, g[layer]),
            "clamped_cosine": clamped_cosine(a, g[layer]),
            "cosine_at_output": cosine(a, g[layer + 1]),
        }
        for layer, a in enumerate(credits)
    )


def first_flags(trajectory: Iterable[Mapping[str, Any]], thresholds: Thresholds) -> dict[str, int | None]:
    """The first epoch at which the scale and the reference check fire; None if they never do.

    Args:
        trajectory: rows of a run's history; ``growth`` and ``grad_norm`` may be None.
    """
    rows = sorted(trajectory, key=lambda row: (row["epoch"], row["layer"]))
    last = max(row["layer"] for row in rows)
    scale = (r["epoch"] for r in rows if r["growth"] is not None and r["growth"] > thresholds.growth)
    collapse = (r["epoch"] for r in rows if r["layer"] == last and r["grad_norm"] < thresholds.reference)
    return {"first_scale_flag": next(scale, None), "first_reference_flag": next(collapse, None)}
