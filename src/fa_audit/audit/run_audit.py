"""Audit a trained run of this package: the protocol on its network, and the metrics of its credits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fa_audit.audit.batch_norm import batch_norm_twice
from fa_audit.audit.diagnose import diagnose
from fa_audit.audit.inputs import BATCH_SIZE, BATCHES
from fa_audit.audit.more_samples import with_more_samples
from fa_audit.audit.report import DiagnosticReport
from fa_audit.audit.run_credits import measure_credits
from fa_audit.audit.run_inputs import baseline_names, read_run
from fa_audit.core.origin import process_origin
from fa_audit.data.dataset import Dataset, evaluation_batches, stability_batches
from fa_audit.experiments.spec import RunSpec
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.training.learner import Learner, naming_own_code
from fa_audit.training.monitor import Row, first_flags


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
        dataset: on the learner's device. It and the trajectory must be the training's own, which
            `fa_audit.audit.run_inputs.read_run` checks.
        accuracy: on the whole test set after the last epoch.
        own_frozen: name and accuracy of the method's own frozen baseline.
        bp_frozen_acc: accuracy of backpropagation's frozen baseline.
        trajectory: the history of the training, which gives the epochs of the first flags; empty if
            unknown.
        stopped_after: the epoch after which the monitor ended the training. Baselines, which
            trained longer, are then left out, and depth utility is not evaluated.
    """
    batches = evaluation_batches(dataset, BATCH_SIZE, limit=1)
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
        test_samples=len(dataset.test_labels),
        stability_batches=stability_batches(dataset, BATCH_SIZE, BATCHES),
    )
    measured = measure_credits(learner, *batches[0]).without(report.missing)
    checks, flags = report.checks, {}
    # The limit of the reference check is that of this batch size.
    if trajectory:
        flags = first_flags(trajectory, checks["scale"].threshold, checks["reference"].threshold)
    end = stopped_after or learner.spec.last_epoch
    report = with_more_samples(report, learner.network, dataset)
    return report.replace(
        credit=measured.blocks,
        deep=measured.deep,
        feature_drift=measured.drift,
        first_flags=flags,
        # Its file records more, and the same run gives the same bytes.
        about={},
        batch_norm_twice=batch_norm_twice(learner, dataset, end),
    )


def audit_files(
    checkpoint: str | Path,
    data: str | Path | None = None,
    *,
    device: str = "cpu",
    thresholds: DiagnosticThresholds | None = None,
    name: str = "",
    **files: Any,
) -> tuple[DiagnosticReport, dict[str, Any]]:
    """Check that a run's files belong together, and audit it.

    Args:
        files: the other arguments of `fa_audit.audit.run_inputs.read_run`.
        thresholds, name: as in `audit`.

    Returns:
        The report, and further facts of the run as JSON types; a fact that the sidecar lacks is
        None.

    Raises:
        AuditError: a file is missing, damaged or of another run.
    """
    learner, dataset, facts, baselines, history = read_run(checkpoint, data, device=device, **files)
    own, bp = baselines.get("own"), baselines.get("bp")
    own_name = baseline_names(learner.spec)["own"]
    # The baseline was trained with options of its own.
    if own and own.get("run"):
        own_name = own["run"]
    with naming_own_code(learner.spec):
        report = audit(
            learner,
            dataset,
            facts.get("accuracy"),
            own_frozen=(own_name, own["accuracy"]) if own else None,
            bp_frozen_acc=bp["accuracy"] if bp else None,
            thresholds=thresholds,
            name=name,
            trajectory=history,
            stopped_after=facts.get("stopped_after"),
        )
    return report, {"baseline_runs": baselines} | _about(learner.spec, facts, device)


def _about(spec: RunSpec, facts: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Describe an audited run by its specification, its sidecar and the process that audits it."""
    trained = facts.get("provenance", {})
    about = {
        "spec": spec.to_dict(),
        "digest": spec.digest,
        "stopped_after": facts.get("stopped_after"),
        "seconds": facts.get("seconds"),
        "device": trained.get("device"),
        "commit": trained.get("commit"),
        "cpu": trained.get("cpu"),
        "torch": trained.get("packages", {}).get("torch"),
        "data_sha256": facts.get("data_sha256"),
        "checkpoint_sha256": facts.get("checkpoint_sha256"),
    }
    if spec.validation and facts:
        about["validation_acc"] = facts["validation_accuracy"]
    return about | {"provenance": process_origin(device)}
