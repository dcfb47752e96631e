"""One verdict of a run for all of its seeds, with its count, its interval, and how many seeds would
settle it.

Imports no pandas and nothing of the audit: the workflow, which prints verdicts, starts fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fa_audit.protocol.intervals import MOST_SEEDS, Interval, seeds_to_settle, t_interval
from fa_audit.protocol.rules import FOUR, fires_of, flag_of, is_finite


@dataclass(frozen=True)
class CheckOverSeeds:
    """One check of a run over its seeds."""

    n: int  # seeds for which it was evaluated
    mean: (
        float | None
    )  # of the distances from the limit, positive where the check does not fire; None without any
    interval: (
        Interval | None
    )  # 95 % t-interval of that mean; None for one seed, or where a distance is infinite
    fires: (
        bool | None
    )  # by the mean; None where it was not evaluated for every seed and the others do not fire
    borderline: bool  # whether the interval contains 0; of one seed, whether its own interval contains the limit
    settles: (
        int | None
    )  # seeds in all that would take 0 out of the interval; None where unknown or above 1,000


@dataclass(frozen=True)
class VerdictOverSeeds:
    """The four-check verdict of a run over its seeds."""

    checks: Mapping[str, CheckOverSeeds]  # by their letters
    against: bool | None  # the network; None where it is open
    verdict: str  # as `fa_audit.protocol.rules.FOUR` words it, with its reasons
    count: int  # seeds whose own verdict is the same, its reasons aside
    seeds: int  # in all
    borderline: tuple[
        str, ...
    ]  # letters of the checks whose other outcome would change the verdict
    settles: (
        int | None
    )  # seeds in all that would settle a borderline verdict; None where that is unknown

    def __str__(self) -> str:
        return self.text(self.seeds)

    def text(self, of: int) -> str:
        """Return the verdict, in how many `of` the seeds it holds, and what would settle a
        borderline one.
        """
        text = f"{self.verdict} {self.count}/{of}" if of > 1 else self.verdict
        if not self.borderline:
            return text
        around = " ({:+.2g} to {:+.2g} from its limit)"
        ends = {letter: self.checks[letter].interval for letter in self.borderline}
        named = ", ".join(
            letter + (around.format(*interval) if interval else "")
            for letter, interval in ends.items()
        )
        enough = f"{self.settles} seeds" if self.settles else f"more than {MOST_SEEDS} seeds"
        return f"{text}; borderline: {named}" + (
            f"; {enough} would settle it" if self.seeds > 1 else ""
        )


def verdict_over_seeds(rows: Iterable[Mapping[str, Any]]) -> VerdictOverSeeds:
    """Return one verdict for the seeds of a run: that of the means of its checks' distances over
    the seeds.

    Args:
        rows: of the tidy table of runs, one for each seed; values, or their texts in the CSV.

    >>> seeds = [{"finite": True, "depth_fires": far < 0, "depth_distance": far} for far in (0.02, -0.01, 0.03)]
    >>> healthy = {f"{check}_{key}": value for check in ("scale", "reference", "stability")
    ...            for key, value in (("fires", False), ("distance", 1.0))}
    >>> print(verdict_over_seeds([seed | healthy for seed in seeds]))
    trustworthy 2/3; borderline: d (-0.038 to +0.065 from its limit); 12 seeds would settle it
    """
    seeds = list(rows)
    checks = {name: _over_seeds(seeds, name) for name in FOUR.checks}
    fires, finite = (
        {name: found.fires for name, found in checks.items()},
        all(map(is_finite, seeds)),
    )
    near, against = (
        [name for name, found in checks.items() if found.borderline],
        FOUR.decides(fires, finite),
    )
    deciding = (
        [name for name in near if fires[name] or not against]
        if FOUR.depends(fires, near, finite)
        else []
    )
    needed = [checks[name].settles for name in deciding]
    known = [count for count in needed if count]
    settles = min(
        known, default=None
    )  # one check is enough for a verdict against the network, else all have to be
    if not against:
        settles = max(known, default=None) if None not in needed else None
    return VerdictOverSeeds(
        checks={FOUR.checks[name]: found for name, found in checks.items()},
        against=against,
        verdict=FOUR.text(fires, finite),
        count=sum(
            FOUR.decides(fires_of(seed, FOUR.checks), is_finite(seed)) is against for seed in seeds
        ),
        seeds=len(seeds),
        borderline=tuple(FOUR.checks[name] for name in deciding),
        settles=settles,
    )


def _over_seeds(seeds: Sequence[Mapping[str, Any]], check: str) -> CheckOverSeeds:
    fires = [flag for seed in seeds if (flag := flag_of(seed[f"{check}_fires"])) is not None]
    found = [
        float(seed[f"{check}_distance"])
        for seed in seeds
        if flag_of(seed[f"{check}_fires"]) is not None
    ]
    if not found:
        return CheckOverSeeds(0, None, None, None, False, None)
    if len(seeds) == 1:
        return CheckOverSeeds(
            1, found[0], None, fires[0], bool(flag_of(seeds[0].get(f"{check}_borderline"))), None
        )
    interval, mean = t_interval(found), sum(found) / len(found)
    fired = any(fires) if math.isnan(mean) else mean < 0  # NaN: infinities on both sides
    fired = None if len(found) < len(seeds) and not fired else fired
    inside = interval is not None and interval[0] <= 0 <= interval[1]
    return CheckOverSeeds(
        len(found), mean, interval, fired, inside, seeds_to_settle(found) if inside else None
    )
