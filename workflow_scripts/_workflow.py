"""The frame of every script: a log, errors in one line, a device."""

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
TERMINAL = os.dup(2)
signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a job without a traceback


def _end_with(parent: int) -> None:
    """End this process when Snakemake, its parent, has ended without a word (kill -9).

    Snakemake's next call would delete what a job finishes alone, and a training would begin again;
    stopped, it resumes.
    """
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()


@contextmanager
def logged(snakemake: Snakemake, *, leftovers: bool = True) -> Iterator[None]:
    """Send the library's messages and any failure to the rule's log; bad input ends in one line.

    Args:
        leftovers: remove first what a killed job left half-written beside the outputs. Not for a
            training, which does so itself, once it knows that no other process is at work on them.
    """
    try:
        _log_to(snakemake.log[0])
        if job := os.environ.get("SLURM_JOB_ID"):
            log.info("Slurm job %s on %s", job, socket.gethostname())
        if leftovers:
            remove_leftovers(*snakemake.output)
        yield
    except (AuditError, OSError) as error:
        log.error(
            "%s", error, exc_info=error.__cause__ if isinstance(error, OwnCodeError) else None
        )
        os.write(TERMINAL, f"{snakemake.rule}: {error}\n".encode())
        sys.exit(f"{snakemake.rule}: {error}")


def _log_to(path: str) -> None:
    """Send messages, standard output and standard error to a file, tracebacks included."""
    logging.raiseExceptions = (
        False  # on a full disk the result that is not written is the error, not the log
    )
    try:
        words = "%(asctime)s  %(message)s"
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
    """Yield the device that Snakemake granted: ``cpu``, or a GPU that no other job uses while this
    one holds it.
    """
    import torch

    granted, visible = asks_for_gpu(snakemake.resources), torch.cuda.is_available()
    if not (granted and visible):
        shown = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        reason = ": torch sees a GPU, but none was asked for" if visible else ""
        if granted:
            reason = f": a GPU was granted, but torch sees none (CUDA_VISIBLE_DEVICES: {shown})"
        log.info("computing on the CPU%s", reason)
        yield "cpu"
        return
    gpus = [
        str(torch.cuda.get_device_properties(index).uuid)
        for index in range(torch.cuda.device_count())
    ]
    with gpu_lock(gpus) as index:
        torch.cuda.set_device(index)  # nothing of this process lands on another GPU
        log.info("computing on cuda:%d (%s)", index, torch.cuda.get_device_name(index))
        yield f"cuda:{index}"
