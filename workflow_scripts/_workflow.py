"""What every script needs: its log, errors as one line, and its device."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fa_audit.core.errors import AuditError, OwnCodeError
from fa_audit.core.files import not_written, remove_leftovers
from fa_audit.core.gpu import asks_for_gpu, gpu_lock

if TYPE_CHECKING:
    from snakemake.iocontainers import Snakemake

log = logging.getLogger("workflow")
# A copy of standard error: `_log_to` redirects the original to the log.
_TERMINAL = os.dup(2)
# Jobs ignore Ctrl-C and a closed terminal: Snakemake ends its jobs itself (rules/helpers/jobs.smk)
# and would list a job that ended earlier as failed.
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)


def _end_with(parent: int) -> None:
    """End this process when Snakemake, its parent, was killed (kill -9).

    The next call of Snakemake would delete the outputs of a job that went on alone, and begin its
    training again. A training that was stopped resumes.
    """
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()


@contextmanager
def logged(snakemake: Snakemake, *, leftovers: bool = True) -> Iterator[None]:
    """Send the library's messages and any failure to the rule's log; report bad input in one line.

    Args:
        leftovers: first remove half-written files that a killed job left beside the outputs.
    """
    try:
        _log_to(snakemake.log[0])
        if "SLURM_JOB_ID" in os.environ:
            log.info("Slurm job %s on %s", os.environ["SLURM_JOB_ID"], socket.gethostname())
        if leftovers:
            remove_leftovers(*snakemake.output)
        yield
    except (AuditError, OSError) as error:
        # A failure of the user's own code comes with that code's traceback.
        cause = error.__cause__ if isinstance(error, OwnCodeError) else None
        log.error("%s", error, exc_info=cause)
        os.write(_TERMINAL, f"{snakemake.rule}: {error}\n".encode())
        sys.exit(f"{snakemake.rule}: {error}")


def _log_to(path: str) -> None:
    """Send messages, standard output and standard error to a file, tracebacks included."""
    # On a full disk the error should name the unwritten result, not the log.
    logging.raiseExceptions = False
    words = "%(asctime)s  %(message)s"
    try:
        logging.basicConfig(
            filename=path, encoding="utf-8", level=logging.INFO, format=words, force=True
        )
        with open(path, "ab") as file:
            os.dup2(file.fileno(), sys.stdout.fileno())
            os.dup2(file.fileno(), sys.stderr.fileno())
    except OSError as error:
        raise not_written(Path(path), error) from error
    for chatty in ("fontTools", "matplotlib", "PIL"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


@contextmanager
def device(snakemake: Snakemake) -> Iterator[str]:
    """Yield the device to compute on: ``cpu`` if no GPU was granted or torch sees none; else a GPU,
    locked so that no more jobs share it than `jobs_per_gpu` allows.
    """
    import torch

    if not asks_for_gpu(snakemake.resources):
        log.info("computing on the CPU: no GPU was asked for")
        yield "cpu"
    elif not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        log.info(
            "computing on the CPU: a GPU was granted, but torch sees none (CUDA_VISIBLE_DEVICES: %s)",
            visible,
        )
        yield "cpu"
    else:
        count = torch.cuda.device_count()
        gpus = [str(torch.cuda.get_device_properties(index).uuid) for index in range(count)]
        with gpu_lock(gpus) as index:
            # Keep torch from placing anything on another GPU.
            torch.cuda.set_device(index)
            log.info("computing on cuda:%d (%s)", index, torch.cuda.get_device_name(index))
            yield f"cuda:{index}"
