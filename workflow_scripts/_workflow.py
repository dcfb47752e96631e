"""What every script needs around its work: the library on the path, a log, clear failures, a device."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.append(os.getcwd())  # methods of the user's own

from _card import asks_for_gpu, card_of_its_own, visible_cards

from fa_audit.core.errors import AuditError
from fa_audit.core.files import not_written, remove_leftovers

if TYPE_CHECKING:
    from snakemake.iocontainers import Snakemake

log = logging.getLogger("workflow")


@contextmanager
def logged(snakemake: Snakemake, *, leftovers: bool = True) -> Iterator[None]:
    """Send the library's messages and any failure to the rule's log; bad input ends in one line, not a traceback.

    Args:
        leftovers: remove first what a killed job left half-written beside the outputs. Not for a training, which does
            so itself, once it knows that no other process is at work on them.
    """
    try:
        _log_to(snakemake.log[0])
        if job := os.environ.get("SLURM_JOB_ID"):
            log.info("Slurm job %s on %s", job, socket.gethostname())
        if leftovers:
            remove_leftovers(*snakemake.output)
        yield
    except (AuditError, OSError) as error:
        log.error("%s", error)
        sys.exit(f"{snakemake.rule}: {error}")
    except Exception:
        log.exception("%s failed", snakemake.rule)
        raise


def _log_to(path: str) -> None:
    logging.raiseExceptions = False  # a full disk that takes no more lines is told of where a result is written
    try:
        logging.basicConfig(
            filename=path, filemode="a", level=logging.INFO, format="%(asctime)s  %(message)s", force=True
        )
    except OSError as error:
        raise not_written(Path(path), error) from error


@contextmanager
def device(snakemake: Snakemake) -> Iterator[str]:
    """The device that Snakemake granted: ``cpu``, or a GPU that no other job uses while this one holds it."""
    import torch

    granted, seen = asks_for_gpu(snakemake.resources), torch.cuda.is_available()
    if not (granted and seen):
        log.info("computing on the CPU%s", _reason(granted, seen))
        yield "cpu"
        return
    with card_of_its_own(visible_cards()) as index:
        torch.cuda.set_device(index)  # nothing of this process lands on another card
        log.info("computing on cuda:%d (%s)", index, torch.cuda.get_device_name(index))
        yield f"cuda:{index}"


def _reason(granted: bool, seen: bool) -> str:
    """Why there is no computing on a GPU where it could be expected."""
    if granted:
        shown = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        return f": a GPU was granted, but torch sees none (CUDA_VISIBLE_DEVICES: {shown})"
    return ": torch sees a GPU, but none was asked for" if seen else ""
