"""Set how torch computes: float32 without TF32, deterministic kernels, fixed number of threads."""

from __future__ import annotations

import os
from typing import Any

import torch


def set_numerics(threads: int) -> None:
    """Configure the process for training and audits; call it before the first CUDA operation.

    The number of threads changes the order of sums, and so the last bits of results. Callers
    therefore pass a fixed number, never the number of the machine's cores.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    # torch.use_deterministic_algorithms does the same, but imports the compiler.
    torch.set_deterministic_debug_mode("error")
    # Deterministic mode fills every new tensor by default, which costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # In torch 2.11 cuDNN ignores `torch.backends.fp32_precision`.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.fp32_precision = "ieee"  # type: ignore[attr-defined]


def describe_numerics() -> dict[str, Any]:
    """Return the numerical settings in force, to be recorded with a run's results."""
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
