"""What this machine offers, asked without torch, which takes seconds to import."""

from __future__ import annotations

import os
import re
import shutil
from functools import cache
from itertools import takewhile
from pathlib import Path

from _card import SHARING, jobs_per_card
from _command import again_with

from fa_audit.errors import AuditError

DEVICES = Path("/dev")
WINDOWS_GPU = "dxg"  # stands for all GPUs of a Windows machine
ENTRY = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")


@cache
def gpu_here() -> bool:
    """Whether the machine shows a GPU that CUDA_VISIBLE_DEVICES does not hide."""
    shown = (DEVICES / WINDOWS_GPU).exists() or shutil.which("nvidia-smi") is not None
    return _listed() != [] and bool(_device_files() or shown)


def most_cards() -> int | None:
    """The most GPUs that CUDA can show here; None where only the driver knows."""
    files, listed = len(_device_files()), _listed()
    if listed is None:
        return files or None
    return len(list(takewhile(lambda entry: not files or not entry.isdigit() or int(entry) < files, listed)))


def check_gpu_limit(limit: int | None) -> None:
    """Make sure that Snakemake starts no more GPU jobs at once than there is room for.

    Args:
        limit: of the resource gpu; None without one, which Snakemake takes as no limit at all.

    Raises:
        AuditError: there is no limit, or it is larger than the number of jobs that the GPUs take.
    """
    cards, jobs = most_cards(), jobs_per_card()
    room = (cards or 1) * jobs
    if limit is None:
        raise AuditError(
            "no limit of GPU jobs: --resources and other profiles replace the limit of profiles/default."
            f" Run (gpu=0: on the CPU): {again_with('gpu', room)}"
        )
    if cards is not None and limit > room:
        raise AuditError(
            f"--resources gpu={limit}: found room for {room} (GPUs: {cards}, jobs on each: {jobs})."
            f" Run (or set {SHARING}, so that several jobs share a GPU): {again_with('gpu', room)}"
        )


def _device_files() -> list[Path]:
    return list(DEVICES.glob("nvidia[0-9]*"))


def _listed() -> list[str] | None:
    """What CUDA_VISIBLE_DEVICES lists, as CUDA reads it; None where it is not set.

    The first invalid entry ends the list, and one that stands twice empties it.
    """
    if (text := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return None
    entries = list(takewhile(ENTRY.fullmatch, map(str.strip, text.split(","))))
    return entries if len(set(entries)) == len(entries) else []
