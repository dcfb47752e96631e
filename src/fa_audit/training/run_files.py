"""Train a run and write its checkpoint, sidecar and trajectory, each atomically."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path

import torch

from fa_audit.core.errors import AuditError
from fa_audit.core.files import (
    digest_of,
    exclusive,
    remove_leftovers,
    sha256_of,
    signed,
    write_json,
    write_text,
)
from fa_audit.core.origin import cuda_versions, device_name, peak_memory_mb, process_origin
from fa_audit.core.stages import own_code
from fa_audit.data.dataset import Dataset
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.checkpoint import save_checkpoint
from fa_audit.training.learner import naming_own_code
from fa_audit.training.loop import Trained, train
from fa_audit.training.resume import Resume
from fa_audit.training.sidecar import check_run, read_sidecar
from fa_audit.training.trajectory import trajectory_csv

log = logging.getLogger(__name__)


def training_origin(spec: RunSpec, files: Iterable[str | Path], device: str) -> str:
    """Return one text of everything that decides a run's bits, except the code: specification,
    digest of `files`, libraries, device, threads.

    Of a GPU the text names the model, because this decides which kernels run.
    """
    cuda = cuda_versions(device) or {}
    libraries = f"{torch.__version__} {cuda.get('runtime')} {cuda.get('cudnn')}"
    return (
        f"{spec.digest} {digest_of(list(map(sha256_of, files)))} {libraries} {device_name(device)} "
        # The number of threads decides how sums are split, and so the last bits.
        f"{torch.get_num_threads()}"
    )


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
    """Train a run, or continue an interrupted training, and write its results with `write_run`.

    If another process, such as a job of a killed workflow, trains the same run, wait for it and
    keep its results.
    """
    files = {"checkpoint": checkpoint, "trajectory": trajectory}
    with exclusive(resume.path.with_suffix(".lock")):
        remove_leftovers(resume.path, checkpoint, sidecar, trajectory)
        if _is_done(resume.origin, sidecar, **files):
            log.info("nothing to train: %s exists, made by the same code and inputs", checkpoint)
        else:
            with naming_own_code(spec):
                trained = train(spec, dataset, device=device, resume=resume)
            write_run(
                trained,
                **files,
                sidecar=sidecar,
                device=device,
                origin=resume.origin,
                data_sha256=dataset.sha256,
            )
        # Clear the saved state only once the results are written.
        resume.path.unlink(missing_ok=True)


def _is_done(wanted: str, sidecar: str | Path, **files: str | Path) -> bool:
    """Return whether undamaged results exist whose entry `fingerprint` is `wanted`."""
    with contextlib.suppress(AuditError, OSError):
        facts = read_sidecar(sidecar)
        check_run(facts, sidecar, **files)
        return bool(facts["fingerprint"] == wanted)
    return False


def write_run(
    trained: Trained,
    checkpoint: str | Path,
    *,
    sidecar: str | Path,
    trajectory: str | Path,
    device: str,
    origin: str,
    **more: str,
) -> None:
    """Write the results of a run: checkpoint (the same bytes for the same run), sidecar and
    history.

    Args:
        sidecar: JSON with the specification, the final accuracy on the whole test set, wall time
            and provenance.
        origin: as in `Resume`; written as the sidecar's entry `fingerprint`.
        more: other entries of the sidecar.
    """
    spec, parameters = trained.learner.spec, list(trained.learner.network.parameters())
    save_checkpoint(trained.learner, checkpoint)
    write_text(trajectory, trajectory_csv(trained.history))
    about = {
        "spec": spec.to_dict(),
        "digest": spec.digest,
        "fingerprint": origin,
        **more,
        "accuracy": trained.accuracy,
        "parameters": sum(p.numel() for p in parameters),
        "trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "seconds": round(trained.seconds, 3),
        "stopped_after": trained.stopped_after,
        "checkpoint_sha256": sha256_of(checkpoint),
        "trajectory_sha256": sha256_of(trajectory),
        "provenance": process_origin(device) | {"peak_memory_mb": peak_memory_mb(device)},
    }
    if trained.validation_accuracy is not None:
        about["validation_accuracy"] = trained.validation_accuracy
    own = own_code(spec.method, spec.architecture, spec.dataset)
    if own:
        about["provenance"]["own_code"] = own
    write_json(sidecar, signed(about))
