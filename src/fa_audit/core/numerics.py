"""Set how torch computes: float32 without shortcuts, deterministic kernels, a fixed number of
threads.
"""

from __future__ import annotations

import os
from typing import Any

import torch


def set_numerics(threads: int) -> None:
    """Configure the process for training and audits; call it before the first CUDA operation.

    The number of threads changes the order of sums, and so the bits. It is therefore part of a run,
    and never taken from the machine.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    # As use_deterministic_algorithms, without importing the compiler.
    torch.set_deterministic_debug_mode("error")
    # On by default beside deterministic kernels; it would write to every new tensor once more.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # In torch 2.11 cuDNN does not follow the next line.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.fp32_precision = "ieee"  # type: ignore[attr-defined]


def describe_numerics() -> dict[str, Any]:
    """Return the settings in force, for provenance."""
    operations = {
        "matmul": torch.backends.cuda.matmul,
        "convolution": torch.backends.cudnn.conv,  # type: ignore[attr-defined]
        "recurrence": torch.backends.cudnn.rnn,
    }
    return {
        "threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "fp32_precision": torch.backends.fp32_precision,  # type: ignore[attr-defined]
        "tf32": {name: part.fp32_precision == "tf32" for name, part in operations.items()},
        "cudnn": {
            "deterministic": torch.backends.cudnn.deterministic,
            "benchmark": torch.backends.cudnn.benchmark,
        },
        "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    }
