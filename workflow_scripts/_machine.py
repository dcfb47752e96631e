"""What this machine offers, asked without torch, which takes seconds to import."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path

from _card import SHARING, jobs_per_card
from _command import again_with

from fa_audit.core.errors import AuditError

DEVICES = Path("/dev")
ENTRY = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")


@cache
def most_cards() -> int:
    """The most GPUs that CUDA can show here: those of the machine that CUDA_VISIBLE_DEVICES does not hide."""
    there, listed = len(list(DEVICES.glob("nvidia[0-9]*"))) or _reported(), _listed()
    if listed is None or not there:
        return there
    return len(list(takewhile(lambda entry: not entry.isdigit() or int(entry) < there, listed)))


def check_gpu_limit(limits: Mapping[str, object]) -> None:
    """Make sure that Snakemake starts no more GPU jobs at once than there is room for.

    Args:
        limits: of resources; a resource without one is not limited at all.

    Raises:
        AuditError: there is no limit of gpu, or it is larger than the number of jobs that the GPUs take.
    """
    limit, cards, jobs = limits.get("gpu"), most_cards(), jobs_per_card()
    again = again_with(limits, "gpu", cards * jobs)
    if limit is None:
        raise AuditError(
            "no limit of GPU jobs: --resources and other profiles replace the limit of profiles/default."
            f" Run (gpu=0: on the CPU): {again}"
        )
    if limit > cards * jobs:
        raise AuditError(
            f"--resources gpu={limit}: found room for {cards * jobs} (GPUs: {cards}, jobs on each: {jobs})."
            f" Run (or set {SHARING}, so that several jobs share a GPU): {again}"
        )


def _reported() -> int:
    """The GPUs that the driver reports, for machines that have no file for each (Windows, some containers)."""
    try:
        said = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return len(re.findall("^GPU [0-9]+:", said, flags=re.MULTILINE))


def _listed() -> list[str] | None:
    """What CUDA_VISIBLE_DEVICES lists, as CUDA reads it; None where it is not set.

    The first invalid entry ends the list, one that stands twice empties it, and after a slice of a card nothing counts.
    """
    if (text := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return None
    entries = list(takewhile(ENTRY.fullmatch, map(str.strip, text.split(","))))
    if entries and entries[0].startswith("MIG-"):
        return entries[:1]
    return entries if len(set(entries)) == len(entries) else []
