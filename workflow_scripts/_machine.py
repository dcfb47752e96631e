"""What this machine offers, asked without torch, which takes seconds to import."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

GPU_FILES = ("/dev/nvidia0", "/dev/dxg")


@cache
def gpu_here() -> bool:
    """Whether the machine shows a GPU that CUDA_VISIBLE_DEVICES does not hide."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1"):
        return False
    return any(Path(file).exists() for file in GPU_FILES) or shutil.which("nvidia-smi") is not None
