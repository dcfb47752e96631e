"""Progress on standard error: one line of a terminal, with the time left; a line every ten seconds
of a log.
"""

import io
import sys

import pytest

from fa_audit.core import progress
from fa_audit.core.progress import following


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.fixture
def written(monkeypatch):
    """``written(4, 6.0, terminal=True)``: what is written while four items take six seconds each."""

    def run(items, seconds, *, terminal, leave=None):
        now = [100.0]
        monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(sys, "stderr", stream := Stream(terminal))
        work = following(iter(range(items)), "batch", items)
        assert [now.__setitem__(0, now[0] + seconds) for item in work if item != leave] == [
            None
        ] * items
        return stream.getvalue()

    return run


def test_a_terminal_has_one_line_with_the_time_left_and_none_in_the_end(written):
    lines = written(4, 6.0, terminal=True).split("\r\x1b[K")
    left = ["", ", 18 s left", ", 12 s left", ", 6 s left"]
    assert lines == ["", *(f"fa-audit: batch {n}/4{text}" for n, text in enumerate(left, 1)), ""]
    assert written(100, 0.01, terminal=True).count("batch") == 2  # not each of many
    assert written(1, 6.0, terminal=True) == ""


def test_a_log_has_a_line_every_ten_seconds_and_none_of_short_work(written):
    assert written(4, 6.0, terminal=False) == "fa-audit: batch 3/4, 12 s left\n"
    assert written(90, 0.1, terminal=False) == ""


def test_an_abandoned_line_is_cleared(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := Stream(True))
    with pytest.raises(ZeroDivisionError):
        for item in following([0, 1], "batch"):
            _ = 1 / item
    assert stream.getvalue() == "\r\x1b[Kfa-audit: batch 1/2\r\x1b[K"
