"""Rules that judge a published number by ours, one for each kind of entry.

A rule allows what its entry says; the logarithm of a magnitude may differ by what seeds scatter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from scipy import stats

from fa_audit.experiments.published import Entry, at_most, plain
from fa_audit.results.our_runs import Measured
from fa_audit.results.statistics import Summary, summarise

REPRODUCED, NOT_REPRODUCED, NOT_RUN = "reproduced", "not reproduced", "not run"
VERDICT = {True: REPRODUCED, False: NOT_REPRODUCED}
LEAST = 0.1  # always allowed to a magnitude's logarithm: published numbers have two digits, some one
FEWEST = 3  # seeds that show their scatter


@dataclass(frozen=True)
class Scatter:
    """How the logarithm of a quantity varies with the seed: sample deviation, over how many seeds, of what."""

    deviation: float
    n: int
    of: str

    def allowed(self, ours: int, theirs: int, published: float | None) -> float:
        """Return by how much means over as many seeds may differ, at 95 % and at least `LEAST`.

        Args:
            ours: seeds of the right run, also where another one stands in for it.
            published: deviation of the published logarithms; None if it is not known, and taken to be ours.
        """
        other = self.deviation if published is None else published
        t = float(stats.t.ppf(0.975, self.n - 1))
        return max(LEAST, t * math.sqrt(self.deviation**2 / ours + other**2 / theirs))


def scatter_of(values: list[float], of: str = "seeds") -> Scatter | None:
    """Return the scatter of numbers of one sign, none of them 0; None for fewer than three."""
    logs = [math.log(abs(value)) for value in values if value and math.isfinite(value)]
    return Scatter(summarise(logs).deviation or 0.0, len(logs), of) if len(logs) >= FEWEST else None


@dataclass(frozen=True)
class Judgement:
    """The comparison of one published number with our runs.

    The distance of a mean from the published value, for a magnitude of its logarithm, is in units of what the rule
    allows: beyond -1..1 it is not reproduced. Other kinds have none.
    """

    verdict: str  # reproduced, not reproduced or not run
    rule: str = ""  # what was asked, with its numbers, and the answer
    reproduced: float | str | None = None  # the mean over seeds, the verdict of the seeds, or the runs in our order
    summary: Summary | None = None  # of a mean
    distance: float | None = None
    remark: str = ""


def judge(entry: Entry, measured: Measured, scatter: Scatter, seeds: int | None = None) -> Judgement:
    """Return the verdict on one published number.

    Args:
        measured: what the tables say, by run and seed; a run without rows has no seeds.
        scatter: of the quantity over seeds; magnitudes are judged by it.
        seeds: of the right run, where another one stands in for it; default those that are measured.
    """
    if missing := [run for run in measured if not measured[run]]:
        remark = f"no audit of {', '.join(missing)}" if len(missing) < len(measured) else ""
        return Judgement(NOT_RUN, remark=remark)
    numbers = combined(entry, measured)
    if not all(numbers.values()):
        return Judgement(NOT_RUN, remark="no seed of every run")
    flat = [(run, seed, number) for run, found in numbers.items() for seed, number in found.items()]
    if entry.kind != "verdict" and (broken := [one for one in flat if not math.isfinite(one[2])]):
        told = [f"{run} seed {seed} {'has none' if math.isnan(x) else f'has {x}'}" for run, seed, x in broken]
        nowhere = all(math.isnan(number) for *_, number in flat)
        remark = f"no finite number: {', '.join(told)}"
        return Judgement(NOT_REPRODUCED, "", "none" if nowhere else None, remark=remark)
    found = {run: list(values.values()) for run, values in numbers.items()}
    count = seeds or len(next(iter(found.values())))
    known = entry.kind == "magnitude" and entry.deviation is not None
    published = abs(entry.deviation / entry.value) if known else None
    return RULES[entry.kind](entry, found, scatter.allowed(count, entry.n, published), scatter.of)


def combined(entry: Entry, measured: Measured) -> Measured:
    """Return the numbers of an entry's runs, less those of another run or divided by them, seed by seed."""
    if not entry.other:
        common = set.intersection(*map(set, measured.values()))  # of an order: seeds that every run has
        return {
            run: {seed: found for seed, found in seeds.items() if seed in common} for run, seeds in measured.items()
        }
    (run,), (word, other) = entry.runs, entry.other
    pairs = {seed: (own, measured[other][seed]) for seed, own in measured[run].items() if seed in measured[other]}
    if word == "minus":
        return {run: {seed: own - less for seed, (own, less) in pairs.items()}}
    return {run: {seed: own / by if by else math.nan for seed, (own, by) in pairs.items()}}


def _value_rule(entry: Entry, numbers: Mapping[str, list[float]], *_: Any) -> Judgement:
    (own,) = map(summarise, numbers.values())
    difference = own.mean - entry.value
    holds = at_most(abs(difference), entry.tolerance)
    answer = f"|mean - {entry.value:g}| <= {entry.tolerance:g}: {abs(difference):.3g}"
    return Judgement(VERDICT[holds], answer, own.mean, own, difference / entry.tolerance)


def _magnitude_rule(entry: Entry, numbers: Mapping[str, list[float]], allowed: float, of: str) -> Judgement:
    """Compare the geometric mean with the published value, which must have its sign."""
    (values,) = numbers.values()
    ratios = [value / entry.value for value in values]
    own, rule = summarise(values), f"|ln(mean / {entry.value:g})| <= {allowed:.3g}, by the scatter of {of}"
    if min(ratios) <= 0:
        return Judgement(NOT_REPRODUCED, f"{rule}: of another sign", own.mean, own)
    log = summarise(map(math.log, ratios))
    low, high = (entry.value * math.exp(end) for end in log.interval or (math.nan, math.nan))
    mean = entry.value * math.exp(log.mean)
    summary = Summary(own.n, mean, own.deviation, log.interval and (min(low, high), max(low, high)))
    answer = f"{rule}: {abs(log.mean):.3g}"
    return Judgement(VERDICT[at_most(abs(log.mean), allowed)], answer, mean, summary, log.mean / allowed)


def _bound_rule(entry: Entry, numbers: Mapping[str, list[float]], *_: Any) -> Judgement:
    (values,) = numbers.values()
    own, kept = summarise(values), sum(map(entry.allows, values))
    rule = f"every seed {entry.published}: {kept}/{len(values)}"
    return Judgement(VERDICT[kept == len(values)], rule, own.mean, own)


def _order_rule(entry: Entry, numbers: Mapping[str, list[float]], *_: Any) -> Judgement:
    means = {run: summarise(values).mean for run, values in numbers.items()}
    holds = all(_above(one, other) for one, other in pairwise(means.values()))
    ranked = sorted(means, key=means.__getitem__, reverse=True)
    signs = [" > " if _above(means[one], means[other]) else " = " for one, other in pairwise(ranked)]
    ours = "".join(run + sign for run, sign in zip(ranked, [*signs, ""]))
    told = ", ".join(f"{run} {mean:.4g}" for run, mean in means.items())
    return Judgement(VERDICT[holds], f"means fall in this order: {told}", ours)


def _verdict_rule(entry: Entry, numbers: Mapping[str, list[Any]], *_: Any) -> Judgement:
    (found,) = numbers.values()
    counts = Counter(found)
    shares = ", ".join(f"{value} {count}/{len(found)}" for value, count in counts.most_common())
    agreed = next(iter(counts)) if len(counts) == 1 else shares
    return Judgement(VERDICT[agreed == plain(entry.value)], f"every seed {plain(entry.value)}: {shares}", agreed)


RULES: dict[str, Callable[[Any, Mapping[str, list[Any]], float, str], Judgement]] = {
    "value": _value_rule,
    "magnitude": _magnitude_rule,
    "bound": _bound_rule,
    "verdict": _verdict_rule,
    "order": _order_rule,
}


def _above(one: float, other: float) -> bool:
    """Compare means by ``>``, where the last bits decide nothing."""
    return not at_most(one, other)
