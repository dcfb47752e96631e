"""Where a result comes from: code, packages, machine. Imports torch only where the machine is asked for."""

from __future__ import annotations

import contextlib
import platform
import re
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DRIVER = Path("/proc/driver/nvidia/version")
CPU = Path("/proc/cpuinfo")


def provenance(device: torch.device | str) -> dict[str, Any]:
    """Return facts about this process and its device as JSON types; equal for the same code on the same machine."""
    from fa_audit.core.numerics import describe_numerics

    return {
        "commit": commit(),
        "python": platform.python_version(),
        "packages": packages(),
        "platform": platform.platform(),
        "device": device_name(device),
        "cpu": cpu_model(),
        "cuda": cuda_versions(device),
    } | describe_numerics()


def device_name(device: torch.device | str) -> str:
    """Return e.g. ``cpu (x86_64)`` or ``cuda (name of the GPU)``."""
    import torch

    kind = torch.device(device).type
    return f"{kind} ({torch.cuda.get_device_name(device) if kind == 'cuda' else platform.machine()})"


def cpu_model() -> str | None:
    """Return the processor, such as ``NAME (family 6, model 143, stepping 8)``, which decides the bits of a run."""
    with contextlib.suppress(OSError, KeyError):
        facts = dict(re.findall(r"^(.+?)\s*:\s*(.+)$", CPU.read_text(encoding="utf-8"), re.MULTILINE))
        return "{model name} (family {cpu family}, model {model}, stepping {stepping})".format_map(facts)
    return platform.processor() or None


def cuda_versions(device: torch.device | str) -> dict[str, Any] | None:
    """Return the versions of CUDA's libraries and of the driver, None where unknown; None on a CPU."""
    import torch

    if torch.device(device).type != "cuda":
        return None
    driver = re.search(r"Module.*?([\d.]{3,})", DRIVER.read_text(encoding="utf-8")) if DRIVER.exists() else None
    return {
        "runtime": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": driver[1] if driver else None,
    }


def peak_memory_mb(device: torch.device | str) -> dict[str, float]:
    """Return the peak resident memory of the process and, on a GPU, peak allocated device memory, in MB (1e6 bytes)."""
    import torch

    unit = 1 if sys.platform == "darwin" else 1024
    peak = {"resident": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)}
    if torch.device(device).type == "cuda":
        peak["device"] = round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    return peak


def commit() -> str:
    """Return `git describe` of the running code, or 'unknown' outside a git checkout."""
    command = ["git", "describe", "--always", "--dirty", "--tags"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def packages() -> dict[str, str | None]:
    """Return the installed version of this package and of those that it declares; None where one is not installed."""
    with contextlib.suppress(PackageNotFoundError):
        declared = [line for line in requires("fa-audit") or () if "extra == 'dev'" not in line.replace('"', "'")]
        return {name: _version(name) for name in ("fa-audit", *(re.split(r"[^\w-]", line)[0] for line in declared))}
    return {"fa-audit": None}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
