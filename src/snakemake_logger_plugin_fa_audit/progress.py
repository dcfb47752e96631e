"""How far the work is, and how long the rest will take."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import fmean

ENOUGH = 3  # finished jobs from which to extrapolate


def rule_and_job(rule: str, wildcards: Mapping[str, str] | None) -> str:
    """Return a job in words: its rule, then method, seed and setting, or whatever wildcards it has.

    >>> rule_and_job("train_network", {"setting": "demo", "run": "dfa", "seed": "42"})
    'train network     dfa                   seed 42      demo'
    >>> rule_and_job("draw_figure", {"figure": "trajectories"})
    'draw figure       trajectories'
    """
    words = dict(wildcards or {})
    if words.keys() >= {"run", "seed", "setting"}:
        job = f"{words['run']:<20}  seed {words['seed']:<6}  {words['setting']}"
    else:
        job = " ".join(words.values())
    return f"{rule.replace('_', ' '):<16}  {job}".rstrip()


class Progress:
    """Measured seconds of the finished jobs, by rule, and the estimate for the others."""

    def __init__(self) -> None:
        self.left: Counter[str] = Counter()
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.running: dict[int, tuple[str, float]] = {}
        self.began = self.share = 0.0

    def plan(self, stats: Mapping[str, int], now: float) -> None:
        """Record how many jobs each rule has."""
        self.left = Counter({rule: count for rule, count in stats.items() if rule != "total"})
        self.began = now

    def start(self, job: int, name: str, now: float) -> None:
        """Record a job's start."""
        self.running[job] = name, now

    def give_up(self, job: int) -> str | None:
        """Forget a job that failed; return its name."""
        return self.running.pop(job, (None, 0.0))[0]

    def finish(self, job: int, now: float) -> list[str]:
        """Return the line for a job that finished."""
        if job not in self.running:
            return []
        name, start = self.running.pop(job)
        rule = name[:16].rstrip().replace(" ", "_")
        self.seconds[rule].append(now - start)
        self.left[rule] -= 1
        rest = self.rest(now)
        spent = sum(map(sum, self.seconds.values()))
        last = self.left.total() <= 1 and not self.running
        self.share = 1.0 if last else max(self.share, min(0.99, spent / (spent + rest or 1)))
        return [f"{self.share:>4.0%}  {self.clock(rest, now):<14}  {name}"]

    def rest(self, now: float) -> float:
        """Return the seconds of work that are left if every job takes as long as the finished ones
        of its rule.

        A rule without finished jobs counts like the fastest one: trainings come first, and take
        longest.
        """
        if self.left.total() <= 1:  # the target itself
            return 0.0
        means = {rule: fmean(seconds) for rule, seconds in self.seconds.items()}
        jobs = sum(
            count * means.get(rule, min(means.values())) for rule, count in self.left.items()
        )
        return max(0.0, jobs - sum(now - start for _, start in self.running.values()))

    def clock(self, rest: float, now: float) -> str:
        """Return the time to go, in minutes and seconds, with as many jobs at once as until now."""
        finished = [second for rule in self.seconds.values() for second in rule]
        if len(finished) < ENOUGH:
            return ""
        busy = sum(finished) + sum(now - start for _, start in self.running.values())
        minutes, seconds = divmod(round(rest * (now - self.began) / busy), 60)
        return f"{minutes}:{seconds:02} to go"
