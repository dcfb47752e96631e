"""Audit a run of this package: the protocol on its network, and the metrics of its credits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fa_audit.audit.batch_norm import batch_norm_twice
from fa_audit.audit.credit_metrics import measure_credits
from fa_audit.audit.diagnose import BATCH_SIZE, BATCHES, diagnose
from fa_audit.audit.more_samples import with_more_samples
from fa_audit.audit.report import DiagnosticReport
from fa_audit.core.errors import AuditError
from fa_audit.core.origin import process_origin
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.data.dataset import Dataset, evaluation_batches, held_out, load_dataset, stability_batches
from fa_audit.experiments.paths import data_file
from fa_audit.experiments.spec import Run, RunSpec
from fa_audit.methods.method import load_method
from fa_audit.networks.trace import accuracy_of
from fa_audit.training.checkpoint import load_checkpoint
from fa_audit.training.learner import Learner, naming_own_code
from fa_audit.training.monitor import Row, first_flags
from fa_audit.training.sidecar import HINT, check_baseline, check_run, check_spec, read_baseline, read_sidecar
from fa_audit.training.trajectory import check_history, read_trajectory

ROUNDING = 0.005  # of an accuracy, on another device than that of the training
# What to do about a sidecar, and about a baseline, of another run than the checkpoint that a person named.
HINTS = ("Put the checkpoint's own beside it.", "Give its file, or train it.")


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
    measured = measure_credits(learner, *batches[0]).without(report.evidence.untrue)
    limits = replace(report.thresholds, g_norm_floor=report.checks.reference.threshold)  # of this batch size
    flags = first_flags(trajectory, limits) if trajectory else {}
    return replace(
        report,
        evidence=with_more_samples(report.evidence, learner.network, dataset),
        credit=measured.blocks,
        deep=measured.deep,
        feature_drift=measured.drift,
        first_flags=flags,
        about={},  # its file records more, and the same run gives the same bytes
        batch_norm_twice=batch_norm_twice(learner, dataset, stopped_after or learner.spec.last_epoch),
    )


def audit_files(
    checkpoint: str | Path,
    data: str | Path | None = None,
    *,
    sidecar: str | Path | None = None,
    trajectory: str | Path | None = None,
    baselines: Mapping[str, str | Path],
    spec: RunSpec | None = None,
    method: str | None = None,
    architecture: str | None = None,
    device: str = "cpu",
    thresholds: DiagnosticThresholds | None = None,
    name: str = "",
) -> tuple[DiagnosticReport, dict[str, Any]]:
    """Audit a trained run from its files, once they are known to belong together.

    Args:
        data: default the file in ``results/data/`` of the data set that the checkpoint names.
        sidecar, trajectory: what the training wrote beside the checkpoint; None if unknown.
        baselines: files of the baselines that there are, by their roles ``own``, ``bp`` and ``shallow``.
        spec: of the run that is expected; default the checkpoint's.
        method, architecture: ``package.module:Class`` of one that is not registered; a checkpoint does not decide
            what is imported.
        thresholds, name: as in `audit`.

    Returns:
        The report, and as JSON types what else is known of the run; an entry that the sidecar lacks is None.

    Raises:
        AuditError: a file is missing, damaged or of another run.
    """
    own_method = load_method(method) if method else None
    learner = load_checkpoint(checkpoint, device, method=own_method, architecture=architecture)
    expected, own_files, own_baseline = (spec, HINT, HINT) if spec else (learner.spec, *HINTS)
    facts = _facts(sidecar, trajectory, checkpoint, expected, own_files)
    check_spec(learner.spec, expected, checkpoint)
    compared = _compared(baselines, expected, own_baseline)
    history = read_trajectory(trajectory) if trajectory else ()
    if history:
        check_history(history, expected, facts.get("accuracy"), facts.get("stopped_after"), str(trajectory))
    dataset = load_dataset(data or data_file(expected.dataset)).to(device)
    _check_data(learner, dataset)
    with naming_own_code(learner.spec):
        if sidecar:
            _check_accuracies(learner, dataset, facts, sidecar)
        report = audit(
            learner,
            dataset,
            facts.get("accuracy"),
            own_frozen=(baseline_names(expected)["own"], own["accuracy"]) if (own := compared.get("own")) else None,
            bp_frozen_acc=bp["accuracy"] if (bp := compared.get("bp")) else None,
            thresholds=thresholds,
            name=name,
            trajectory=history,
            stopped_after=facts.get("stopped_after"),
        )
    return report, {"baseline_runs": compared} | _about(expected, facts, device)


def _facts(
    sidecar: str | Path | None, trajectory: str | Path | None, checkpoint: str | Path, expected: RunSpec, hint: str
) -> dict[str, Any]:
    """Read a sidecar once it is known to be that of the files beside it; without one, nothing is known."""
    if not sidecar:
        return {}
    facts = read_sidecar(sidecar)
    check_spec(RunSpec.from_dict(facts["spec"]), expected, sidecar, hint)
    check_run(facts, sidecar, checkpoint=checkpoint, **({"trajectory": trajectory} if trajectory else {}))
    return facts


def _compared(baselines: Mapping[str, str | Path], expected: RunSpec, hint: str) -> dict[str, dict[str, Any]]:
    """Read baselines once they are known to be those of a run."""
    names = baseline_names(expected)
    compared = {role: read_baseline(path) for role, path in baselines.items()}
    for role, path in baselines.items():
        check_baseline(compared[role], names[role], expected, path, hint)
        _check_baseline_history(compared[role], Path(path).with_suffix(".csv"))
    return compared


def baseline_names(spec: RunSpec) -> dict[str, str]:
    """Return the names of the runs that a network is compared with, by their roles."""
    return {role: str(run) for role, run in Run(method=spec.method, snapshot=spec.snapshot).baselines.items()}


def _check_accuracies(learner: Learner, dataset: Dataset, facts: Mapping[str, Any], sidecar: str | Path) -> None:
    """Compare the accuracies that a sidecar tells with the network's; another device may round a few samples apart."""
    validation = held_out(dataset, learner.spec.validation)[1]
    for name, images in {"accuracy": dataset, "validation_accuracy": validation}.items():
        found = accuracy_of(learner.network, evaluation_batches(images)) if images else None
        told = facts.get(name)
        if found != told and (None in (found, told) or abs(found - told) > max(ROUNDING, 2 / len(images.test_labels))):
            raise AuditError(
                f"{sidecar}: {name}: found {told}; the network of its checkpoint has {found} on these images. One of"
                " them was altered: delete both and run the training again, or give the data that it was trained on."
            )


def _check_baseline_history(baseline: Mapping[str, Any], beside: Path) -> None:
    """Compare a baseline with its trajectory, where that is beside it or where the workflow keeps it."""
    kept = [*beside.parts[:-4], "trajectories", *beside.parts[-3:]]
    for history in filter(Path.exists, (beside, Path(*kept))):
        spec, stopped_after = RunSpec.from_dict(baseline["spec"]), baseline.get("stopped_after")
        check_history(read_trajectory(history), spec, baseline["accuracy"], stopped_after, str(history))


def _about(spec: RunSpec, facts: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Describe an audited run by its specification, its sidecar and the process that audits it."""
    trained = facts.get("provenance", {})
    known = {key: facts.get(key) for key in ("stopped_after", "seconds")}
    known |= {key: trained.get(key) for key in ("device", "commit", "cpu")} | {
        "torch": trained.get("packages", {}).get("torch"),
        **{key: facts.get(key) for key in ("data_sha256", "checkpoint_sha256")},
    }
    known |= {"validation_acc": facts["validation_accuracy"]} if spec.validation and facts else {}
    return {"spec": spec.to_dict(), "digest": spec.digest} | known | {"provenance": process_origin(device)}


def _check_data(learner: Learner, dataset: Dataset) -> None:
    ours = (learner.spec.dataset, learner.image_shape, learner.network.classes)
    theirs = (dataset.name, dataset.image_shape, dataset.classes)
    if ours != theirs:
        data = "{!r} with images {} of {} classes"
        raise AuditError(
            f"data set: found {data.format(*theirs)}; the network was trained on {data.format(*ours)}. Give the data"
            " set that it was trained on."
        )
