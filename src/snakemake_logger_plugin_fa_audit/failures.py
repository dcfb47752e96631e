"""Failed jobs and their causes, in a few lines."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

SHOWN = 2  # of the failures, at the end
STOPPED = re.compile(
    r"Signals\.SIG(HUP|INT|TERM)|exit status 1(29|30|43)\b"
)  # by 128 + signal, a shell's
TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} +")


class Failures:
    """The jobs that failed, with the last line of each log."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, str, str]] = []
        self.stopped: list[str] = []  # by a signal that was not for the whole work
        self.interrupted = False  # once true, what fails was stopped
        self.ended = False
        self.message = ""

    def error(self, message: str) -> list[str]:
        """Return an error of Snakemake; one about a job is kept, for where the job's log is empty."""
        if message.startswith(("RuleException", "CalledProcessError")):
            self.message = message.splitlines()[-1]
            return []
        reported, self.ended = self.ended, True
        return [] if reported else [message]

    def add(self, job: str, logs: Sequence[str]) -> list[str]:
        """Return the line for a job that failed; none for one that was stopped."""
        log, name = logs[0] if logs else "", " ".join(job.split())
        message, self.message = self.message, ""
        if self.interrupted or STOPPED.search(message):
            self.stopped.append(name)
            return []
        cause = last_line(log) or message
        rule, _, rest = cause.partition(
            ": "
        )  # a script begins its error with its rule, which the name has already
        cause = rest if rest and name.startswith(rule.replace("_", " ")) else cause
        self.jobs.append((name, cause, log))
        return [f"FAILED  {name}: {cause}"]

    def lines(self, advice: str) -> list[str]:
        """Return the end of a run that did not succeed: what failed and why, and the command to go
        on.

        Args:
            advice: the workflow's own message, a heading first.
        """
        self.ended = True
        what = f"{len(self.jobs)} jobs failed" if self.jobs[1:] else "a job failed"
        lines = ["", f"fa-audit: {'stopped' if self.interrupted or not self.jobs else what}."]
        for job, cause, log in self.jobs[:SHOWN]:
            lines += [f"  {job}: {cause}"[:400], f"      {log}"]
        if self.jobs[SHOWN:]:
            lines.append(f"  and {len(self.jobs) - SHOWN} more")
        if self.stopped and not self.interrupted:  # while the others went on
            lines.append(f"  stopped by a signal: {', '.join(self.stopped[:SHOWN])}")
        command = os.environ.get("FA_AUDIT_COMMAND") or shlex.join(["snakemake", *sys.argv[1:]])
        return [*lines, *advice.splitlines()[1:], f"             {command}"]


def last_line(path: str) -> str:
    """Return the last line of a log without its time, or nothing."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return TIME.sub("", next((line for line in reversed(lines) if line.strip()), "")).strip()
