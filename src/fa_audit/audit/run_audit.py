"""Audit a trained run of this package.

Read its files and check that they belong together; then run the protocol on its network and measure
its credits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fa_audit.audit.batch_norm import batch_norm_twice
from fa_audit.audit.diagnose import diagnose
from fa_audit.audit.diagnostics import distance_from
from fa_audit.audit.inputs import BATCH_SIZE, BATCHES
from fa_audit.audit.run_credits import measure_credits
from fa_audit.audit.statistics import median_ratio
from fa_audit.core.errors import AuditError, listed
from fa_audit.core.origin import process_origin
from fa_audit.core.vectors import median_norm
from fa_audit.data.dataset import (
    Dataset,
    evaluation_batches,
    held_out,
    load_dataset,
    stability_batches,
)
from fa_audit.experiments.paths import data_file
from fa_audit.experiments.spec import SAMPLES, Run, RunSpec, run_of
from fa_audit.methods import METHODS
from fa_audit.methods.method import load_method
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Reference, accuracy_of, reference, untouched
from fa_audit.protocol.audit import DiagnosticReport
from fa_audit.protocol.evidence import DiagnosticThresholds, State
from fa_audit.training.checkpoint import load_checkpoint
from fa_audit.training.learner import Learner, naming_own_code
from fa_audit.training.monitor import Row, first_flags
from fa_audit.training.sidecar import HINT, check_spec, read_baseline, read_training
from fa_audit.training.trajectory import check_history, read_trajectory

# Largest difference allowed between one network's accuracies on two devices.
ROUNDING = 0.005
# What to do if a sidecar, or a baseline, belongs to another run than the user's checkpoint.
_HINTS = ("Put the checkpoint's own sidecar beside it.", "Give that baseline's file, or train it.")


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
        files: passed on to `read_run`.
        thresholds: as in `diagnose`.
        name: the run's name in the report; default the one of its specification.

    Returns:
        The report, and further facts of the run as JSON types; a fact that the sidecar lacks is
        None.

    Raises:
        AuditError: a file is missing, is damaged or belongs to another run.
    """
    learner, dataset, facts, baselines, history = read_run(checkpoint, data, device=device, **files)
    own_frozen = bp_frozen_acc = None
    if "own" in baselines:
        # The run name of the baseline shows its options, which may differ from the audited run's.
        usual = run_of(learner.spec, learner.network.depth).baselines["own"]
        own_name = baselines["own"].get("run") or str(usual)
        own_frozen = own_name, baselines["own"]["accuracy"]
    if "bp" in baselines:
        bp_frozen_acc = baselines["bp"]["accuracy"]
    with naming_own_code(learner.spec):
        report = audit(
            learner,
            dataset,
            facts.get("accuracy"),
            own_frozen=own_frozen,
            bp_frozen_acc=bp_frozen_acc,
            thresholds=thresholds,
            name=name,
            trajectory=history,
            stopped_after=facts.get("stopped_after"),
        )
    about = _about(learner.spec, facts) | {"provenance": process_origin(device)}
    return report, {"baseline_runs": baselines} | about


def _about(spec: RunSpec, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a run by its specification and its sidecar."""
    about: dict[str, Any] = {"spec": spec.to_dict(), "digest": spec.digest}
    for name in ("stopped_after", "seconds", "data_sha256", "checkpoint_sha256"):
        about[name] = facts.get(name)
    # Machine and code of the training, not of the audit.
    trained = facts.get("provenance", {})
    for name in ("device", "commit", "cpu"):
        about[name] = trained.get(name)
    about["torch"] = trained.get("packages", {}).get("torch")
    if spec.validation and facts:
        about["validation_acc"] = facts["validation_accuracy"]
    return about


# --- the audit ------------------------------------------------------------------------------------


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
        dataset: on the learner's device. Data set and trajectory must be those of the training;
            `read_run` checks this.
        accuracy: on the whole test set after the last epoch.
        own_frozen: name and accuracy of the method's own frozen baseline.
        bp_frozen_acc: accuracy of backpropagation's frozen baseline.
        trajectory: the history of the training, which shows when D1 and D2 first fired; empty if
            unknown.
        stopped_after: the epoch after which the monitor ended the training. Baselines, which
            trained longer, are then left out, and D3 is not evaluated.
    """
    # Norms use the first 128 test images, as in the paper; accuracies use all.
    batches = evaluation_batches(dataset, BATCH_SIZE, limit=1)
    own_name, own_acc = own_frozen or ("own frozen baseline", None)
    if stopped_after is not None:
        own_name = (
            f"frozen baseline of {stopped_after} epochs: the run has {stopped_after}, after which"
            " it stopped"
        )
        own_acc = bp_frozen_acc = None
    report = diagnose(
        learner.network,
        batches,
        accuracy,
        own_acc,
        method_name=name or str(run_of(learner.spec, learner.network.depth)),
        thresholds=thresholds,
        bp_frozen_acc=bp_frozen_acc,
        frozen_baseline_name=own_name,
        test_samples=len(dataset.test_labels),
        stability_batches=stability_batches(dataset, BATCH_SIZE, BATCHES),
    )
    measured = measure_credits(learner, *batches[0]).without(report.missing)
    checks, flags = report.checks, {}
    # The trajectory's norms come from the report's batch, so D2's limit is the same.
    if trajectory:
        flags = first_flags(trajectory, checks["scale"].threshold, checks["reference"].threshold)
    end = stopped_after or learner.spec.last_epoch
    return report.replace(
        layers=_with_more_samples(report, learner.network, dataset),
        credit=measured.blocks,
        deep=measured.deep,
        feature_drift=measured.drift,
        first_flags=flags,
        # A date would give the same run other bytes at each audit.
        about={"share": report.about["share"]},
        batch_norm_twice=batch_norm_twice(learner, dataset, end),
    )


def _with_more_samples(
    report: DiagnosticReport, network: Network, dataset: Dataset
) -> tuple[State, ...]:
    """Add every state's measurements on the first 256 and 1,024 test images, if there are that
    many: some published numbers use these counts.

    Gradients are those of the mean loss of these images.
    """
    layers = list(report.layers)
    for count in SAMPLES:
        if count > len(dataset.test_labels):
            continue
        with untouched(network):
            truth = reference(network, *evaluation_batches(dataset, count, limit=1)[0])
        for index, row in enumerate(_states(truth, network.skip)):
            if index in report.missing:
                row["grad_norm"] = None
            named = {f"{name}_{count}": value for name, value in row.items()}
            more = layers[index].more_samples | named
            layers[index] = layers[index].replace(more_samples=more)
    return tuple(layers)


def _states(truth: Reference, skip: str) -> Iterator[dict[str, float | None]]:
    """Yield every state's norms, relative residual norm, and distance and cosine to ``h_0``."""
    for h, g, after in zip_longest(truth.states, truth.gradients, truth.states[1:]):
        moved, angle = distance_from(truth.states[0], h)
        # The ratio is measured in the network's own precision, as published numbers are.
        ratio = None
        # No block follows the last state, and states of different widths cannot be subtracted.
        if after is not None and after.shape == h.shape:
            residual = after if skip == "none" else after - h
            ratio = median_ratio(residual, h).value
        yield {
            "hidden_norm": median_norm(h),
            "grad_norm": median_norm(g),
            "residual_ratio": ratio,
            "displacement": moved.value,
            "cosine_to_embedding": angle.value,
        }


# --- its files ------------------------------------------------------------------------------------


def read_run(
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
) -> tuple[Learner, Dataset, dict[str, Any], dict[str, dict[str, Any]], Sequence[Row]]:
    """Read a trained run from its files.

    Args:
        data: default ``results/data/NAME.safetensors``, for the data set that the checkpoint names.
        sidecar, trajectory: files that the training wrote beside the checkpoint; None if unknown.
        baselines: files of the known baselines, by their roles ``own``, ``bp`` and ``shallow``.
        spec: the expected run's specification; default the checkpoint's.
        method, architecture: ``package.module:Class``, required without `spec` if the checkpoint
            names one that is not registered. A checkpoint does not decide what is imported.

    Returns:
        Learner and data set on the device; the sidecar's facts, empty without one; every baseline's
        facts by role; the training's history, empty if unknown.

    Raises:
        AuditError: a file is missing, damaged or of another run.
    """
    if spec:
        method = None if spec.method in METHODS else spec.method
        architecture = spec.architecture
    own_method = load_method(method) if method else None
    learner = load_checkpoint(checkpoint, device, method=own_method, architecture=architecture)
    expected, hint, baseline_hint = learner.spec, *_HINTS
    if spec:
        expected, hint, baseline_hint = spec, HINT, HINT
    # Check digests and specifications first: numbers of another run would mean nothing.
    facts: dict[str, Any] = {}
    if sidecar:
        files = {"checkpoint": checkpoint, "trajectory": trajectory}
        facts = read_training(sidecar, expected, hint, **files)
    check_spec(learner.spec, expected, checkpoint)
    run = run_of(expected, learner.network.depth)
    if baselines and run.is_baseline:
        raise AuditError(
            f"{checkpoint}: found a network without trained blocks, and baselines to compare it with"
            f" ({listed(map(str, baselines.values()))}); expected no baselines, for it is one."
        )
    compared = _compared(baselines, run, expected, baseline_hint)
    history: Sequence[Row] = ()
    if trajectory:
        history, end = read_trajectory(trajectory), facts.get("stopped_after")
        check_history(history, expected, facts.get("accuracy"), end, str(trajectory))
    # The slow part comes last: reading the data and running the network.
    dataset = load_dataset(data or data_file(expected.dataset)).to(device)
    _check_dataset(learner, dataset)
    if sidecar:
        _check_accuracies(learner, dataset, facts, sidecar)
    return learner, dataset, facts, compared, history


def _compared(
    baselines: Mapping[str, str | Path], run: Run, expected: RunSpec, hint: str
) -> dict[str, dict[str, Any]]:
    """Read baselines, and check that they belong to the expected run and agree with their
    trajectories.
    """
    compared = {}
    for role, path in baselines.items():
        facts = read_baseline(path, str(run.baselines[role]), expected, hint)
        beside = Path(path).with_suffix(".csv")
        # The workflow keeps histories in a folder of their own.
        kept = Path(*beside.parts[:-4], "trajectories", *beside.parts[-3:])
        spec, end = RunSpec.from_dict(facts["spec"]), facts.get("stopped_after")
        for history in (beside, kept):
            if history.exists():
                rows = read_trajectory(history)
                check_history(rows, spec, facts["accuracy"], end, str(history))
        compared[role] = facts
    return compared


def _check_dataset(learner: Learner, dataset: Dataset) -> None:
    """Check by name and shapes that a network was trained on this data set."""
    ours = (learner.spec.dataset, learner.image_shape, learner.network.classes)
    theirs = (dataset.name, dataset.image_shape, dataset.classes)
    if ours != theirs:
        form = "{!r} with images {} of {} classes"
        raise AuditError(
            f"data set: found {form.format(*theirs)}; the network was trained on"
            f" {form.format(*ours)}. Give the data set that it was trained on."
        )


def _check_accuracies(
    learner: Learner, dataset: Dataset, facts: Mapping[str, Any], sidecar: str | Path
) -> None:
    """Compare a sidecar's accuracies with the network's; a few predictions may differ, since
    devices round differently.
    """
    validation = held_out(dataset, learner.spec.validation)[1]
    for name, images in {"accuracy": dataset, "validation_accuracy": validation}.items():
        reported, actual, tolerance = facts.get(name), None, 0.0
        if images:
            tolerance = max(ROUNDING, 2 / len(images.test_labels))
            with naming_own_code(learner.spec):
                actual = accuracy_of(learner.network, evaluation_batches(images))
        same = actual is reported  # both None: the run held out no validation images
        if actual is not None and reported is not None:
            same = abs(reported - actual) <= tolerance
        if not same:
            raise AuditError(
                f"{sidecar}: {name}: found {reported}; the network of its checkpoint has {actual} on"
                " these images. If sidecar or checkpoint was altered, delete both and train again;"
                " if the network was trained on other images, give those."
            )
