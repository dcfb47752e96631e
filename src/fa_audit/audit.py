"""The audit of a run of this package: the protocol on its network, and what its credits are worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fa_audit.credit_metrics import measure_credits
from fa_audit.data import Dataset, evaluation_batches
from fa_audit.learner import Learner
from fa_audit.protocol import DiagnosticReport, Thresholds, diagnose
from fa_audit.protocol.doors import BATCH_SIZE, BATCHES


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
    measured = measure_credits(learner, *batches[0])
    return replace(report, credit=measured.blocks, deep=measured.deep, feature_drift=measured.drift)


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
