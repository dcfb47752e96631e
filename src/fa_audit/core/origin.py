"""Record how a result was made: the code, packages, machine and input files.

Imports torch only to describe a device.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fa_audit.core.files import digest_of, sha256_of
from fa_audit.core.stages import ROOT, own_code

if TYPE_CHECKING:
    import torch

_DRIVER = Path("/proc/driver/nvidia/version")
CPU = Path("/proc/cpuinfo")


# --- an artefact ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Origin:
    """The code, configuration and input files from which a figure or a table was made."""

    commit: str  # `git describe` of the code that made it
    spec: str  # SHA-256 of its entry in the configuration and of its runs' specifications
    inputs: Mapping[str, str]  # SHA-256 of every file that it was made from, by path
    own_code: Mapping[str, str]  # SHA-256 of user-defined code that made it, by path

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self)

    def __str__(self) -> str:
        files = {**self.inputs, **self.own_code}.items()
        parts = [f"commit {self.commit}", f"spec {self.spec}"]
        return "; ".join([*parts, *(f"{path} {digest}" for path, digest in files)])


def origin_of(
    entry: Mapping[str, Any], runs: Iterable[str], inputs: Iterable[str | Path]
) -> Origin:
    """Digest the code, configuration and files from which a figure or table is being made.

    Args:
        entry: the artefact's entry in the configuration.
        runs: digests of the specifications of its runs, in any order.
        inputs: the files that the artefact is made from.
    """
    spec = digest_of([entry, sorted(set(runs))])
    return Origin(
        commit(), spec, {str(path): sha256_of(path) for path in inputs}, own_code(entry["kind"])
    )


# --- the process and its machine ------------------------------------------------------------------


def process_origin(device: torch.device | str) -> dict[str, Any]:
    """Describe code, packages, processor, device and numerical settings of this process as JSON
    types.
    """
    from fa_audit.core.numerics import describe_numerics

    return {
        "commit": commit(),
        "python": platform.python_version(),
        "packages": packages(),
        "platform": platform.platform(),
        "device": device_name(device),
        "cpu": _cpu_model(),
        "cuda": cuda_versions(device),
    } | describe_numerics()


def device_name(device: torch.device | str) -> str:
    """Return e.g. ``cpu (x86_64)`` or ``cuda (name of the GPU)``."""
    import torch

    kind = torch.device(device).type
    name = torch.cuda.get_device_name(device) if kind == "cuda" else platform.machine()
    return f"{kind} ({name})"


def _cpu_model() -> str | None:
    """Return the processor, such as ``NAME (family 6, model 143, stepping 8)``, on which the
    last bits of a run depend.
    """
    with contextlib.suppress(OSError, KeyError):
        lines = CPU.read_text(encoding="utf-8")
        facts = dict(re.findall(r"^(.+?)\s*:\s*(.+)$", lines, re.MULTILINE))
        text = "{model name} (family {cpu family}, model {model}, stepping {stepping})"
        return text.format_map(facts)
    return platform.processor() or None


def cuda_versions(device: torch.device | str) -> dict[str, Any] | None:
    """Return the versions of CUDA, cuDNN and the driver, None if unknown; return None on a CPU."""
    import torch

    if torch.device(device).type != "cuda":
        return None
    text = _DRIVER.read_text(encoding="utf-8") if _DRIVER.exists() else ""
    driver = re.search(r"Module.*?([\d.]{3,})", text)
    return {
        "runtime": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": driver and driver[1],
    }


def peak_memory_mb(device: torch.device | str) -> dict[str, float]:
    """Return the peak resident memory of the process and, on a GPU, peak allocated device memory,
    in MB (1e6 bytes).
    """
    import torch

    unit = 1 if sys.platform == "darwin" else 1024
    peak = {"resident": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)}
    if torch.device(device).type == "cuda":
        peak["device"] = round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    return peak


def commit() -> str:
    """Return `git describe` of the running code, or 'unknown' if `ROOT` is no Git checkout."""
    command = ["git", "describe", "--always", "--dirty", "--tags"]
    # Git must not search above ROOT: a repository there is another project's.
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(ROOT.parent)}
    try:
        return subprocess.check_output(
            command, cwd=ROOT, env=environment, text=True, stderr=subprocess.DEVNULL
        ).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def packages() -> dict[str, str | None]:
    """Return the installed versions of this package and its dependencies, None if not installed."""
    names = ["fa-audit"]
    with contextlib.suppress(PackageNotFoundError):
        for line in requires("fa-audit") or ():
            if not re.search("extra == .dev", line):
                names.append(re.split(r"[^\w-]", line)[0])
    found: dict[str, str | None] = dict.fromkeys(names)
    for name in found:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
