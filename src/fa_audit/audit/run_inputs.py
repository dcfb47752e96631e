"""Read the files of a trained run, and check that they belong together before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fa_audit.core.errors import AuditError
from fa_audit.data.dataset import Dataset, evaluation_batches, held_out, load_dataset
from fa_audit.experiments.paths import data_file
from fa_audit.experiments.spec import Run, RunSpec
from fa_audit.methods.method import load_method
from fa_audit.networks.trace import accuracy_of
from fa_audit.training.checkpoint import load_checkpoint
from fa_audit.training.learner import Learner, naming_own_code
from fa_audit.training.monitor import Row
from fa_audit.training.sidecar import (
    HINT,
    check_baseline,
    check_run,
    check_spec,
    read_baseline,
    read_sidecar,
)
from fa_audit.training.trajectory import check_history, read_trajectory

# An accuracy may differ by this on another device than that of the training.
ROUNDING = 0.005
# Advice on a sidecar, and on a baseline, of another run than the checkpoint that a person named.
_HINTS = ("Put the checkpoint's own beside it.", "Give its file, or train it.")


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
        method, architecture: ``package.module:Class`` if it is not registered: a checkpoint does
            not decide what is imported.

    Returns:
        Learner and data set on the device; the sidecar's facts, empty without one; every baseline's
        facts by role; the training's history, empty if unknown.

    Raises:
        AuditError: a file is missing, damaged or of another run.
    """
    own_method = load_method(method) if method else None
    learner = load_checkpoint(checkpoint, device, method=own_method, architecture=architecture)
    expected, hint, baseline_hint = learner.spec, *_HINTS
    if spec:
        expected, hint, baseline_hint = spec, HINT, HINT
    # Digests and specifications first: numbers of another run say nothing.
    facts: dict[str, Any] = {}
    if sidecar:
        facts = read_sidecar(sidecar)
        check_spec(RunSpec.from_dict(facts["spec"]), expected, sidecar, hint)
        check_run(facts, sidecar, checkpoint=checkpoint)
    if sidecar and trajectory:
        check_run(facts, sidecar, trajectory=trajectory)
    check_spec(learner.spec, expected, checkpoint)
    compared = _compared(baselines, expected, baseline_hint)
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
    baselines: Mapping[str, str | Path], expected: RunSpec, hint: str
) -> dict[str, dict[str, Any]]:
    """Read baselines, and check that they belong to the expected run and agree with their
    trajectories.
    """
    names, compared = baseline_names(expected), {}
    for role, path in baselines.items():
        facts = read_baseline(path)
        check_baseline(facts, names[role], expected, path, hint)
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


def baseline_names(spec: RunSpec) -> dict[str, str]:
    """Return the names of a run's baselines by role."""
    run = Run(method=spec.method, snapshot=spec.snapshot)
    return {role: str(baseline) for role, baseline in run.baselines.items()}


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
    """Compare a sidecar's accuracies with the network's, allowing for a few samples that devices
    round differently.
    """
    validation = held_out(dataset, learner.spec.validation)[1]
    for name, images in {"accuracy": dataset, "validation_accuracy": validation}.items():
        reported, actual, tolerance = facts.get(name), None, 0.0
        if images:
            tolerance = max(ROUNDING, 2 / len(images.test_labels))
            with naming_own_code(learner.spec):
                actual = accuracy_of(learner.network, evaluation_batches(images))
        same = actual is reported  # both are None if the run held no validation images out
        if actual is not None and reported is not None:
            same = abs(reported - actual) <= tolerance
        if not same:
            raise AuditError(
                f"{sidecar}: {name}: found {reported}; the network of its checkpoint has {actual} on"
                " these images. One of them was altered: delete both and run the training again, or"
                " give the data that it was trained on."
            )
