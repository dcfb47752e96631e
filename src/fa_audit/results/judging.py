"""The rules by which a published number is compared with measured ones (docs/scorecard.md)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fa_audit.experiments.published import Entry, at_most, plain
from fa_audit.results.our_runs import Measured
from fa_audit.results.statistics import Summary, summarise

AGREES, DIFFERS, NOT_RUN = "agrees", "differs", "not run"
VERDICT = {True: AGREES, False: DIFFERS}
DEVIATIONS = 2.0  # pooled standard deviations within which two means agree
FACTOR = 2.0  # within which two magnitudes agree


@dataclass(frozen=True)
class Judgement:
    """The comparison of one published number with measured ones.

    Attributes:
        verdict: agrees, differs or not run.
        rule: the rule with its numbers, and the answer.
        reproduced: the mean over seeds, the verdict of the seeds, or the runs in the measured
            order.
        summary: of a mean.
        distance: of a mean from the published value, in units of what the rule allows; it agrees
            within -1 to 1.
        remark: why there is no number.
    """

    verdict: str
    rule: str = ""
    reproduced: float | str | None = None
    summary: Summary | None = None
    distance: float | None = None
    remark: str = ""


def judge(entry: Entry, measured: Measured) -> Judgement:
    """Compare one published number with what tables say of its runs.

    Args:
        measured: values by run and seed; a run without rows has no seeds.
    """
    missing = [run for run, seeds in measured.items() if not seeds]
    if missing:
        partly = len(missing) < len(measured)
        return Judgement(NOT_RUN, remark=f"no audit of {', '.join(missing)}" if partly else "")
    numbers = {run: list(seeds.values()) for run, seeds in combined(entry, measured).items()}
    if not all(numbers.values()):
        return Judgement(NOT_RUN, remark="no seed of every run")
    values = [value for found in numbers.values() for value in found]
    if entry.kind != "verdict" and not all(map(math.isfinite, values)):
        absent = all(map(math.isnan, values))
        return Judgement(DIFFERS, reproduced="none" if absent else None, remark="no finite number")
    return RULES[entry.kind](entry, numbers)


def combined(entry: Entry, measured: Measured) -> Measured:
    """Return the numbers of an entry's runs, less those of another run or divided by them, seed by
    seed.
    """
    common = set.intersection(*map(set, measured.values()))
    aligned = {
        run: {seed: seeds[seed] for seed in seeds if seed in common}
        for run, seeds in measured.items()
    }
    if not entry.other:
        return aligned
    (run,), (word, other) = entry.runs, entry.other
    combine = _less if word == "minus" else _ratio
    return {
        run: {seed: combine(value, aligned[other][seed]) for seed, value in aligned[run].items()}
    }


def _less(one: float, other: float) -> float:
    return one - other


def _ratio(one: float, other: float) -> float:
    return one / other if other else math.nan


def _value_rule(entry: Entry, numbers: Mapping[str, list[float]]) -> Judgement:
    """Compare the mean with the published one, by the pooled deviation if both are means over
    seeds.
    """
    (values,) = numbers.values()
    own = summarise(values)
    allowed = entry.tolerance
    if own.n > 1 and entry.n > 1 and entry.deviation is not None:
        freedom = own.n + entry.n - 2
        pooled = ((own.n - 1) * own.deviation**2 + (entry.n - 1) * entry.deviation**2) / freedom
        allowed = DEVIATIONS * math.sqrt(pooled)
    difference = own.mean - entry.value
    rule = f"|mean - {entry.value:g}| <= {allowed:.3g}: {abs(difference):.3g}"
    agrees = at_most(abs(difference), allowed)
    return Judgement(VERDICT[agrees], rule, own.mean, own, difference / max(allowed, 1e-12))


def _magnitude_rule(entry: Entry, numbers: Mapping[str, list[float]]) -> Judgement:
    """Compare the geometric mean with the published value, which must have its sign."""
    (values,) = numbers.values()
    own = summarise(values)
    ratios = [value / entry.value for value in values]
    rule = f"mean / {entry.value:g} within {1 / FACTOR:g} to {FACTOR:g}"
    if min(ratios) <= 0:
        return Judgement(DIFFERS, f"{rule}: of another sign", own.mean, own)
    log = summarise(map(math.log, ratios))
    mean = entry.value * math.exp(log.mean)
    interval = log.interval and tuple(sorted(entry.value * math.exp(end) for end in log.interval))
    agrees = at_most(abs(log.mean), math.log(FACTOR))
    summary = Summary(own.n, mean, own.deviation, interval)
    return Judgement(
        VERDICT[agrees],
        f"{rule}: {math.exp(log.mean):.3g}",
        mean,
        summary,
        log.mean / math.log(FACTOR),
    )


def _bound_rule(entry: Entry, numbers: Mapping[str, list[float]]) -> Judgement:
    (values,) = numbers.values()
    own, kept = summarise(values), sum(map(entry.allows, values))
    rule = f"every seed {entry.published}: {kept}/{len(values)}"
    return Judgement(VERDICT[kept == len(values)], rule, own.mean, own)


def _order_rule(entry: Entry, numbers: Mapping[str, list[float]]) -> Judgement:
    means = {run: summarise(values).mean for run, values in numbers.items()}
    agrees = all(_above(one, other) for one, other in pairwise(means.values()))
    ranked = sorted(means, key=means.__getitem__, reverse=True)
    order = ranked[0]
    for one, other in pairwise(ranked):
        order += f" {'>' if _above(means[one], means[other]) else '='} {other}"
    told = ", ".join(f"{run} {mean:.4g}" for run, mean in means.items())
    return Judgement(VERDICT[agrees], f"means fall in this order: {told}", order)


def _verdict_rule(entry: Entry, numbers: Mapping[str, list[Any]]) -> Judgement:
    (found,) = numbers.values()
    counts = Counter(found).most_common()
    shares = ", ".join(f"{value} {count}/{len(found)}" for value, count in counts)
    answer = counts[0][0] if len(counts) == 1 else shares
    return Judgement(
        VERDICT[answer == plain(entry.value)], f"every seed {plain(entry.value)}: {shares}", answer
    )


def _above(one: float, other: float) -> bool:
    """Compare means by ``>``, where the last bits decide nothing."""
    return not at_most(one, other)


RULES: dict[str, Callable[[Any, Mapping[str, list[Any]]], Judgement]] = {
    "value": _value_rule,
    "magnitude": _magnitude_rule,
    "bound": _bound_rule,
    "verdict": _verdict_rule,
    "order": _order_rule,
}
