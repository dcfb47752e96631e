"""Which version of the code runs. Imports no torch."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str:
    """`git describe` of the code that runs, or 'unknown' outside a git checkout."""
    command = ["git", "describe", "--always", "--dirty", "--tags"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
