"""What every script needs around its work: the library on the path, a log, clear failures, a device."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.append(os.getcwd())  # methods of the user's own

from _card import card_of_its_own, visible_cards

from fa_audit.errors import AuditError
from fa_audit.files import not_written, remove_leftovers

if TYPE_CHECKING:
    from snakemake.iocontainers import Snakemake

log = logging.getLogger("workflow")
gc.disable()  # until `logged`: the imports to come make many objects and no garbage, and torch's take a fifth less time


@contextmanager
def logged(snakemake: Snakemake, *, leftovers: bool = True) -> Iterator[None]:
    """Send the library's messages and any failure to the rule's log; bad input ends in one line, not a traceback.

    Args:
        leftovers: remove first what a killed job left half-written beside the outputs. Not for a training, which does
            so itself, once it knows that no other process is at work on them.
    """
    gc.freeze()  # what was imported stays
    gc.enable()
    try:
        _log_to(snakemake.log[0])
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

    granted = bool(snakemake.resources.get("gpu", 0)) or str(snakemake.resources.get("gres", "")).startswith("gpu")
    if not granted or not torch.cuda.is_available():
        log.info("computing on the CPU%s", ": a GPU was granted, but torch sees none" if granted else "")
        yield "cpu"
        return
    with card_of_its_own(visible_cards()) as index:
        torch.cuda.set_device(index)  # nothing of this process lands on another card
        log.info("computing on cuda:%d (%s)", index, torch.cuda.get_device_name(index))
        yield f"cuda:{index}"
