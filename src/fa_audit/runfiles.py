"""A training and what it leaves behind: checkpoint, sidecar and trajectory, each whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from fa_audit.checkpoint import Resume, save_checkpoint
from fa_audit.data import Dataset
from fa_audit.errors import AuditError
from fa_audit.files import exclusive, remove_leftovers, sha256_of, write_json, write_text
from fa_audit.provenance import cuda_versions, device_name, peak_memory_mb, provenance
from fa_audit.spec import RunSpec
from fa_audit.training import Trained, train, trajectory_csv


def fingerprint(spec: RunSpec, files: Iterable[str | Path], device: str) -> str:
    """Everything that decides the bits of a run: specification, contents of data and code, libraries, device, threads.

    The model of a GPU as well: its kernels are chosen by it.
    """
    versions = cuda_versions(device) or {}
    libraries = " ".join(
        str(version) for version in (torch.__version__, versions.get("runtime"), versions.get("cudnn"))
    )
    return f"{spec.digest} {sha256_of(files)} {libraries} {device_name(device)} {torch.get_num_threads()}"


def train_run(
    spec: RunSpec,
    dataset: Dataset,
    checkpoint: str | Path,
    *,
    sidecar: str | Path,
    trajectory: str | Path,
    resume: Resume,
    device: str,
) -> None:
    """Train a run, from where an interrupted training stopped, and write its results as `write_run` does.

    One process at a time: a killed workflow's training may still be at work, and is waited for.
    """
    with exclusive(resume.path.with_suffix(".lock")):
        remove_leftovers(resume.path, checkpoint, sidecar, trajectory)
        trained = train(spec, dataset, device=device, resume=resume)
        write_run(trained, checkpoint, sidecar=sidecar, trajectory=trajectory, device=device)
        resume.clear()


def write_run(
    trained: Trained, checkpoint: str | Path, *, sidecar: str | Path, trajectory: str | Path, device: str
) -> None:
    """Write the results of a run.

    Args:
        checkpoint: tensors; the same run gives the same bytes.
        sidecar: JSON with the specification, the final accuracy on the whole test set, wall time and provenance.
        trajectory: CSV of the history.
        device: what it was computed on.
    """
    spec = trained.learner.spec
    save_checkpoint(trained.learner, checkpoint)
    write_text(trajectory, trajectory_csv(trained.history))
    about = {
        "spec": spec.to_dict(),
        "digest": spec.digest,
        "accuracy": trained.accuracy,
        "seconds": round(trained.seconds, 3),
        "stopped_after": trained.stopped_after,
        "checkpoint_sha256": sha256_of([checkpoint]),
        "trajectory_sha256": sha256_of([trajectory]),
        "provenance": provenance(device) | {"peak_memory_mb": peak_memory_mb(device)},
    }
    write_json(sidecar, about)


def check_run(facts: Mapping[str, Any], sidecar: str | Path, **files: str | Path) -> None:
    """Compare the files of a run with what its sidecar says of them.

    Args:
        facts: what `sidecar` holds.
        files: ``checkpoint``, ``trajectory`` or both.

    Raises:
        AuditError: a file was altered or belongs to another training than the sidecar.
    """
    for kind, path in files.items():
        recorded = facts.get(f"{kind}_sha256")  # absent in files of older versions
        if recorded and recorded != sha256_of([path]):
            raise AuditError(
                f"{path}: altered, or of another training than {sidecar} (SHA-256 differs). Delete both and run the"
                " training again."
            )
