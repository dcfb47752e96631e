"""The jobs of a dry run, by rule."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

# A reason as Snakemake words it, up to the files or parameters that it names.
REASON = re.compile(r"(?:^|; )([A-Z][^:;]*)")
FOLLOWS = "input files updated by another job"  # left out beside a reason of the job's own


class Network(NamedTuple):
    """What tells a network from others, in the wildcards of its jobs."""

    setting: str
    run: str
    seed: str


class Summary:
    """How many jobs each rule has to do, and why; for which networks: setting, run and seed."""

    def __init__(self) -> None:
        self.networks: set[Network] = set()
        self.jobs: Counter[str] = Counter()
        self.reasons: dict[str, Counter[str]] = defaultdict(Counter)

    def plan(self, stats: Mapping[str, int]) -> None:
        """Take note of how many jobs each rule has."""
        self.jobs = Counter({rule: count for rule, count in stats.items() if rule != "total"})

    def add(self, rule: str, reason: str, wildcards: Mapping[str, str]) -> None:
        """Count a job's reason, Snakemake's: ``Missing output files: a, b; Code has changed since ...``."""
        if all(name in wildcards for name in Network._fields):
            self.networks.add(Network(*(wildcards[name] for name in Network._fields)))
        reasons = [text.strip().lower() for text in REASON.findall(reason)]
        self.reasons[rule].update([why for why in reasons if why != FOLLOWS] or reasons)

    def lines(self) -> list[str]:
        """Return a line per rule and the number of all jobs."""
        width = max(map(len, self.jobs), default=0)
        rows = [f"  {rule:<{width}}  {count:>6}  {self.why(rule)}".rstrip() for rule, count in self.jobs.items()]
        return [f"{self.jobs.total()} jobs to do:", *rows]

    def why(self, rule: str) -> str:
        """Return the reasons of a rule's jobs, with the number of jobs where it is not all of them."""
        return "; ".join(
            reason if count == self.jobs[rule] else f"{reason} ({count})"
            for reason, count in self.reasons[rule].most_common()
        )
