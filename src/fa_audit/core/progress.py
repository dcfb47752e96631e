"""Tell on standard error how long work takes, and on a terminal how far it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def following(items: Sequence[T], what: str) -> Iterator[T]:
    """Yield items, and on a terminal write which of how many it is, on a line that is cleared at the end."""
    shown = sys.stderr.isatty()
    for number, item in enumerate(items, 1):
        if shown:
            print(f"\r\x1b[Kfa-audit: {what} {number}/{len(items)}", end="", file=sys.stderr, flush=True)
        yield item
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return a rounded duration.

    >>> duration(14), duration(200), duration(5000)
    ('14 s', '3 min', '1.4 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
