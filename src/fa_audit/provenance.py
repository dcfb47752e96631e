"""Where a result comes from: code, packages, machine."""

from __future__ import annotations

import platform
import re
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from fa_audit.numerics import describe_numerics
from fa_audit.versions import commit, packages, python

DRIVER = Path("/proc/driver/nvidia/version")


def provenance(device: torch.device | str) -> dict[str, Any]:
    """Facts about this process, as JSON types: the same ones each time that the same code runs on the same machine.

    Args:
        device: what the result was computed on.
    """
    return {
        "commit": commit(),
        "python": python(),
        "packages": packages(),
        "platform": platform.platform(),
        "device": device_name(device),
        "cuda": cuda_versions(device),
    } | describe_numerics()


def device_name(device: torch.device | str) -> str:
    """E.g. ``cpu (x86_64)`` or ``cuda (name of the card)``."""
    kind = torch.device(device).type
    return f"{kind} ({torch.cuda.get_device_name(device) if kind == 'cuda' else platform.machine()})"


def cuda_versions(device: torch.device | str) -> dict[str, Any] | None:
    """Versions of CUDA's libraries and of the driver, None where the system does not tell; None on a CPU."""
    if torch.device(device).type != "cuda":
        return None
    driver = re.search(r"Module.*?([\d.]{3,})", DRIVER.read_text(encoding="utf-8")) if DRIVER.exists() else None
    return {
        "runtime": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": driver[1] if driver else None,
    }


def peak_memory_mb(device: torch.device | str) -> dict[str, float]:
    """Peak resident memory of the process and, on a GPU, peak allocated device memory, in MB (1e6 bytes)."""
    unit = 1 if sys.platform == "darwin" else 1024
    peak = {"resident": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)}
    if torch.device(device).type == "cuda":
        peak["device"] = round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    return peak
