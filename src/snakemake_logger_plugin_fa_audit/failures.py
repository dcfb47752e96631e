"""Failed jobs and their causes, in a few lines."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

SHOWN = 2  # of the failures, at the end
TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} +")


class Failures:
    """The jobs that failed, with the last line of each log."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, str, str]] = []
        self.interrupted = self.stopped = False
        self.message = ""

    def interrupt(self) -> list[str]:
        """Record that the user stopped the work: what fails from here on was stopped."""
        self.interrupted = True
        return ["fa-audit: stopping"]

    def error(self, message: str) -> list[str]:
        """Return an error of Snakemake; one about a job is kept, for where the job's log is empty."""
        if message.startswith(("RuleException", "CalledProcessError")):
            self.interrupted |= "Signals.SIGINT" in message
            self.message = message.splitlines()[-1]
            return []
        reported, self.stopped = self.stopped, True
        return [] if reported else [message]

    def add(self, job: str, logs: Sequence[str]) -> list[str]:
        """Return the line for a job that failed."""
        if self.interrupted:
            return []
        log, name = logs[0] if logs else "", " ".join(job.split())
        cause = last_line(log) or self.message
        rule, _, rest = cause.partition(": ")  # a script begins its error with its rule, which the name has already
        cause = rest if rest and name.startswith(rule.replace("_", " ")) else cause
        self.jobs.append((name, cause, log))
        return [f"FAILED  {name}: {cause}"]

    def lines(self, advice: str) -> list[str]:
        """Return the end of a run that did not succeed: what failed and why, and the command to go on.

        Args:
            advice: the workflow's own message, a heading first.
        """
        self.stopped = True
        what = "stopped" if self.interrupted else f"{len(self.jobs)} jobs failed" if self.jobs[1:] else "a job failed"
        lines = ["", f"fa-audit: {what}."]
        for job, cause, log in self.jobs[:SHOWN]:
            lines += [f"  {job}: {cause}"[:400], f"      {log}"]
        if self.jobs[SHOWN:]:
            lines.append(f"  and {len(self.jobs) - SHOWN} more")
        command = os.environ.get("FA_AUDIT_COMMAND") or shlex.join(["snakemake", *sys.argv[1:]])
        return [*lines, *advice.splitlines()[1:], f"             {command}"]


def last_line(path: str) -> str:
    """Return the last line of a log without its time, or nothing."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return TIME.sub("", next((line for line in reversed(lines) if line.strip()), "")).strip()
