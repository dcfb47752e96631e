"""What a finished training leaves behind: checkpoint, sidecar and trajectory, each whole or not at all."""

from __future__ import annotations

from pathlib import Path

from fa_audit.checkpoint import save_checkpoint
from fa_audit.files import sha256_of, write_json, write_text
from fa_audit.provenance import provenance
from fa_audit.training import Trained, trajectory_csv


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
        "checkpoint_sha256": sha256_of([checkpoint]),
        "provenance": provenance(device),
    }
    write_json(sidecar, about)
