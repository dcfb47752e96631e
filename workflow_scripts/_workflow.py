"""What every script needs around its work: the library on the path, a log, clear failures, a device."""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.append(os.getcwd())  # methods of the user's own

from fa_audit.errors import AuditError
from fa_audit.files import exclusive

if TYPE_CHECKING:
    from snakemake.iocontainers import Snakemake

log = logging.getLogger("workflow")
gc.disable()  # until `logged`: the imports to come make many objects and no garbage, and torch's take a fifth less time


@contextmanager
def logged(snakemake: Snakemake) -> Iterator[None]:
    """Send the library's messages and any failure to the rule's log; bad input ends in one line, not a traceback."""
    gc.freeze()  # what was imported stays
    gc.enable()
    logging.basicConfig(
        filename=snakemake.log[0], filemode="a", level=logging.INFO, format="%(asctime)s  %(message)s", force=True
    )
    try:
        yield
    except AuditError as error:
        log.error("%s", error)
        sys.exit(f"{snakemake.rule}: {error}")
    except Exception:
        log.exception("%s failed", snakemake.rule)
        raise


@contextmanager
def device(snakemake: Snakemake) -> Iterator[str]:
    """The device that Snakemake granted: ``cpu``, or a GPU that no other job uses while this one holds it."""
    import torch

    if not snakemake.resources.get("gpu", 0) or not torch.cuda.is_available():
        log.info("computing on the CPU")
        yield "cpu"
        return
    slots = [Path(".snakemake/gpu_slots") / _card(index) for index in range(torch.cuda.device_count())]
    while True:
        for index, slot in enumerate(slots):
            try:
                with exclusive(slot, wait=False):
                    log.info("computing on cuda:%d (%s)", index, torch.cuda.get_device_name(index))
                    yield f"cuda:{index}"
                    return
            except BlockingIOError:
                continue
        time.sleep(1)


def _card(index: int) -> str:
    """A name for the index-th visible card that is the same whatever CUDA_VISIBLE_DEVICES shows."""
    visible = [card for card in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if card]
    return f"gpu-{visible[index] if index < len(visible) else index}.lock"
