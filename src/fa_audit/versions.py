"""Which versions run: of this code, of Python, of packages. Imports no torch."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("fa-audit", "torch", "torchvision", "numpy", "pandas", "matplotlib", "safetensors", "snakemake")


def commit() -> str:
    """`git describe` of the code that runs, or 'unknown' outside a git checkout."""
    command = ["git", "describe", "--always", "--dirty", "--tags"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def python() -> str:
    """The version of Python."""
    return platform.python_version()


def packages() -> dict[str, str | None]:
    """The installed version of each of `PACKAGES`; None for one that is not installed as a package."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
