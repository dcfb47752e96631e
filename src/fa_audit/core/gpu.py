"""Count GPUs, read their memory and lock one for a job, all without importing torch."""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path

from fa_audit.core.errors import AuditError

SHARING = "FA_AUDIT_JOBS_PER_GPU"
_DEVICE_FILES = Path("/dev")
log = logging.getLogger(__name__)


def asks_for_gpu(resources: Mapping[str, object]) -> bool:
    """Return whether a job's resources ``gpu`` or ``gres`` ask for a GPU or a share of one."""
    return bool(resources.get("gpu")) or str(resources.get("gres")).lstrip("\"'").startswith(
        ("gpu", "shard")
    )


def jobs_per_gpu() -> int:
    """Return how many jobs may share a GPU: one, unless FA_AUDIT_JOBS_PER_GPU names another number.

    Raises:
        AuditError: the variable does not hold an integer 1..99.
    """
    text = os.environ.get(SHARING, "1")
    if not re.fullmatch("[1-9][0-9]?", text):
        raise AuditError(
            f"{SHARING}: found '{text}'; expected an integer 1..99, the number of jobs that "
            "share a GPU."
        )
    return int(text)


@cache
def visible_gpu_count() -> int:
    """Count the GPUs visible to CUDA here, without torch, which takes seconds to import."""
    return len(_visible())


def _visible() -> list[str]:
    """List the GPUs visible to CUDA. As in CUDA, the first invalid entry of CUDA_VISIBLE_DEVICES
    ends the list; entries that begin with GPU- or MIG- are not checked.
    """
    there = [str(index) for index, _ in enumerate(_DEVICE_FILES.glob("nvidia[0-9]*"))]
    if not there:
        return []
    found = []
    for entry in os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(there)).split(","):
        name = entry.strip()
        if name not in there and not name.startswith(("GPU-", "MIG-")):
            break
        found.append(name)
    return found


def smallest_gpu_mb() -> int | None:
    """Return the memory of the smallest visible GPU in MB (2**20 bytes), or None if nvidia-smi does
    not report it.

    nvidia-smi does not report the memory of a part of a GPU (MIG).
    """
    query = [
        "nvidia-smi",
        "--query-gpu=memory.total",
        "--format=csv,noheader,nounits",
        f"--id={','.join(_visible())}",
    ]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
        return min(map(int, said.split()))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


@contextmanager
def gpu_lock(gpus: Sequence[str]) -> Iterator[int]:
    """Lock one of `gpus` (UUIDs) and yield its index; wait if other jobs hold them all.

    A lock is the name of an abstract socket, not a file: it holds for all users and folders of a
    machine, and the system frees it when its holder dies (``grep fa-audit /proc/net/unix`` lists
    locks). Containers with networks of their own do not see each other's locks and must
    be given different GPUs.
    """
    waiting = False
    while True:
        # Fill the first slot of every GPU before the second slot of any GPU.
        for place, (index, gpu) in product(range(jobs_per_gpu()), enumerate(gpus)):
            with socket.socket(socket.AF_UNIX) as lock:
                try:
                    lock.bind(f"\0fa-audit/{gpu}/{place}")
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise
                    continue
                yield index
                return
        if not waiting:
            log.info("waiting: other jobs hold every GPU (%s)", ", ".join(gpus))
        waiting = True
        time.sleep(1)
