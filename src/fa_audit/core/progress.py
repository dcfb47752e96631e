"""Tell on standard error how far work is."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
LONG = 10  # seconds between two lines of a log
EVERY = 0.5  # seconds between two states of a terminal's line


def following(items: Iterable[T], what: str, count: int | None = None) -> Iterator[T]:
    """Yield items, and write the number of each, their count, and the time left as estimated from
    those that are done.

    On a terminal that is one line, cleared at the end; elsewhere a line every ten seconds.

    Args:
        what: the name of one item.
        count: of the items, if they have no length.
    """
    total = len(items) if isinstance(items, Collection) else count or 0
    terminal, started, told = sys.stderr.isatty() and total > 1, time.monotonic(), 0.0
    start, end, pause = ("\r\x1b[K", "", EVERY) if terminal else ("", "\n", LONG)
    try:
        for done, item in enumerate(items):
            passed = time.monotonic() - started
            if passed - told > pause or (terminal and not done):
                told, left = (
                    passed,
                    f", {duration(passed / done * (total - done))} left" if done else "",
                )
                print(
                    f"{start}fa-audit: {what} {done + 1}/{total}{left}",
                    end=end,
                    file=sys.stderr,
                    flush=True,
                )
            yield item
    finally:
        if terminal:
            print(start, end="", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return a rounded duration.

    >>> duration(14), duration(200), duration(5000)
    ('14 s', '3 min', '1.4 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
