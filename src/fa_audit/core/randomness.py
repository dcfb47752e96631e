"""Derive a random stream per purpose from a seed; draws for one purpose change no other stream."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import torch


def stream_seed(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed for one purpose of a run, e.g. ``stream_seed(42, "epoch", 3)``."""
    # A hash keeps neighbouring seeds from giving similar streams.
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(
    seed: int, *purpose: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a generator for one purpose; it gives the same draws after every resume.

    Args:
        device: where the generator draws; another kind of device gives other draws.
    """
    return torch.Generator(device).manual_seed(stream_seed(seed, *purpose))


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global CPU stream inside this context, and restore it at the end."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
