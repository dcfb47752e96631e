"""Where a result comes from: code, packages, machine."""

from __future__ import annotations

import platform
import resource
import sys
from typing import Any

import torch

from fa_audit.numerics import describe_numerics
from fa_audit.versions import commit, packages, python


def provenance(device: torch.device | str) -> dict[str, Any]:
    """Facts about this process, as JSON types.

    Args:
        device: what the result was computed on.
    """
    return {
        "commit": commit(),
        "python": python(),
        "packages": packages(),
        "platform": platform.platform(),
        "device": device_name(device),
        "peak_memory_mb": peak_memory_mb(device),
    } | describe_numerics()


def device_name(device: torch.device | str) -> str:
    """E.g. ``cpu (x86_64)`` or ``cuda (name of the card)``."""
    kind = torch.device(device).type
    return f"{kind} ({torch.cuda.get_device_name(device) if kind == 'cuda' else platform.machine()})"


def peak_memory_mb(device: torch.device | str) -> dict[str, float]:
    """Peak resident memory of the process and, on a GPU, peak allocated device memory, in MB (1e6 bytes)."""
    unit = 1 if sys.platform == "darwin" else 1024
    peak = {"resident": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)}
    if torch.device(device).type == "cuda":
        peak["device"] = round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    return peak
