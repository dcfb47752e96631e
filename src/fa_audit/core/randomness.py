"""Derive independent random streams from one seed, so that no draw depends on earlier ones of another purpose."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import torch


def stream_seed(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed for one purpose of a run, e.g. ``stream_seed(42, "epoch", 3)``."""
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a CPU generator for one purpose: the same draws on every device and after every resume."""
    return torch.Generator().manual_seed(stream_seed(seed, *purpose))


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run code that draws from torch's global CPU stream as after ``torch.manual_seed(seed)``; leave it as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
