"""Audit a run of this package: the protocol on its network, and the metrics of its credits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fa_audit.audit.credit_metrics import measure_credits
from fa_audit.audit.diagnose import BATCH_SIZE, BATCHES, diagnose
from fa_audit.audit.report import DiagnosticReport
from fa_audit.core.errors import AuditError
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.data.dataset import Dataset, evaluation_batches
from fa_audit.training.learner import Learner
from fa_audit.training.monitor import Row, first_flags
from fa_audit.training.trajectory import check_history


def audit(
    learner: Learner,
    dataset: Dataset,
    accuracy: float | None,
    *,
    own_frozen: tuple[str, float] | None = None,
    bp_frozen_acc: float | None = None,
    thresholds: DiagnosticThresholds | None = None,
    name: str = "",
    trajectory: Sequence[Row] = (),
    stopped_after: int | None = None,
) -> DiagnosticReport:
    """Audit a trained run.

    Args:
        learner: network and method, as loaded from a checkpoint.
        dataset: on the learner's device.
        accuracy: on the whole test set after the last epoch.
        own_frozen: name and accuracy of the method's own frozen baseline.
        bp_frozen_acc: accuracy of backpropagation's frozen baseline.
        trajectory: the history of the training, from which the epochs of the first flags come; empty if unknown.
        stopped_after: the epoch after which the monitor ended the training. Baselines then had a larger budget and
            are left out, so that depth utility is not evaluated.

    Raises:
        AuditError: the network was trained on another data set, or on one of other images or classes, or the trajectory
            lacks rows or ends with another accuracy.
    """
    _check_data(learner, dataset)
    if trajectory:
        check_history(trajectory, learner.spec, accuracy, stopped_after, f"trajectory of {name or learner.spec.method}")
    batches = evaluation_batches(dataset, BATCH_SIZE, BATCHES)
    own_name, own_acc = own_frozen or ("own frozen baseline", None)
    if stopped_after is not None:
        own_name = f"frozen baseline of {stopped_after} epochs, after which it stopped"
        own_acc = bp_frozen_acc = None
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
    flags = first_flags(trajectory, report.thresholds) if trajectory else {}
    return replace(report, credit=measured.blocks, deep=measured.deep, feature_drift=measured.drift, first_flags=flags)


def _check_data(learner: Learner, dataset: Dataset) -> None:
    ours = (learner.spec.dataset, learner.image_shape, learner.network.classes)
    theirs = (dataset.name, dataset.image_shape, dataset.classes)
    if ours != theirs:
        data = "{!r} with images {} of {} classes"
        raise AuditError(
            f"data set: found {data.format(*theirs)}; the network was trained on {data.format(*ours)}. Give the data"
            " set that it was trained on."
        )
