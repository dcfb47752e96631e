"""Compare a published number with measured ones, by the rules in docs/reproduction.md."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any

from fa_audit.experiments.published import Entry, plain
from fa_audit.results.statistics import Summary, summarise

AGREES, DIFFERS, NOT_RUN = "agrees", "differs", "not run"
_DEVIATIONS = 2.0  # two means agree if they differ by at most so many pooled deviations
_FACTOR = 2.0  # two magnitudes agree if their ratio is at most this
Measured = Mapping[str, Mapping[int, Any]]  # run -> seed -> value


@dataclass(frozen=True)
class Comparison:
    """The result of comparing one published number with measured ones.

    Attributes:
        verdict: agrees, differs or not run.
        rule: the rule of the comparison, with its numbers.
        reproduced: mean over seeds; for a verdict the seeds' answers; for an order the ranked runs.
        summary: mean, deviation and interval, if the number is a mean.
        distance: distance of a mean from the published value, in units of what the rule allows.
        numbers: the compared numbers, by run and seed.
    """

    verdict: str
    rule: str = ""
    reproduced: float | str | None = None
    summary: Summary | None = None
    distance: float | None = None
    numbers: Measured = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Return the number of seeds."""
        return min(map(len, self.numbers.values()), default=0)


def compare(entry: Entry, measured: Measured) -> Comparison:
    """Compare one published number with the measured values of its runs.

    Args:
        measured: values by run and seed; empty for a run that was not made.
    """
    numbers = combined(entry, measured)
    found = Comparison(NOT_RUN, numbers=numbers)
    if not found.n:
        return found
    values = {run: list(by_seed.values()) for run, by_seed in numbers.items()}
    every = list(chain(*values.values()))
    if entry.kind != "verdict" and not all(map(math.isfinite, every)):
        reproduced = "none" if all(map(math.isnan, every)) else None
        found = Comparison(DIFFERS, "not all numbers are finite", reproduced)
    elif entry.kind == "order":
        found = _order(values)
    else:
        rules = {"value": _value, "magnitude": _magnitude, "bound": _bound, "verdict": _verdict}
        found = rules[entry.kind](entry, every)
    return replace(found, numbers=numbers)


def combined(entry: Entry, measured: Measured) -> Measured:
    """Return the numbers of an entry's runs, for the seeds that all of them have.

    An entry may name one more run: ``minus`` subtracts that run's numbers, ``over`` divides by
    them.
    """
    common = set.intersection(*map(set, measured.values()))
    runs = {}
    for run in entry.runs:
        runs[run] = {seed: value for seed, value in measured[run].items() if seed in common}
        for seed, value in runs[run].items():
            if entry.minus:
                runs[run][seed] = value - measured[entry.minus][seed]
            elif entry.over:
                divisor = measured[entry.over][seed]
                runs[run][seed] = value / divisor if divisor else math.nan
    return runs


def _value(entry: Entry, values: Sequence[float]) -> Comparison:
    """Compare the mean with the published one.

    They may differ by two pooled standard deviations, or by `tolerance` if either has no deviation.
    """
    own = summarise(values)
    allowed = entry.tolerance
    if own.n > 1 and entry.n > 1 and entry.deviation is not None:
        freedom = own.n + entry.n - 2
        squares = (own.n - 1) * own.deviation**2 + (entry.n - 1) * entry.deviation**2
        allowed = _DEVIATIONS * math.sqrt(squares / freedom)
    difference = own.mean - entry.value
    rule = f"|mean - {entry.value:g}| <= {allowed:.3g}: {abs(difference):.3g}"
    verdict = _agrees(_at_most(abs(difference), allowed))
    return Comparison(verdict, rule, own.mean, own, difference / max(allowed, 1e-12))


def _magnitude(entry: Entry, values: Sequence[float]) -> Comparison:
    """Compare the geometric mean with the published value; all seeds must have its sign."""
    own = summarise(values)
    ratios = [value / entry.value for value in values]
    rule = f"geometric mean / {entry.value:g} within {1 / _FACTOR:g} to {_FACTOR:g}"
    if min(ratios) <= 0:
        return Comparison(DIFFERS, f"{rule}: of another sign", own.mean, own)
    log = summarise(map(math.log, ratios))
    mean = entry.value * math.exp(log.mean)
    interval = None
    if log.interval:
        low, high = sorted(entry.value * math.exp(end) for end in log.interval)
        interval = low, high
    distance = log.mean / math.log(_FACTOR)
    verdict = _agrees(_at_most(abs(distance), 1))
    summary = replace(own, mean=mean, interval=interval)
    return Comparison(verdict, f"{rule}: {math.exp(log.mean):.3g}", mean, summary, distance)


def _bound(entry: Entry, values: Sequence[float]) -> Comparison:
    low = -math.inf if entry.above is None else entry.above
    high = math.inf if entry.below is None else entry.below
    kept = sum(low < value < high for value in values)
    rule, own = f"every seed {entry.published}: {kept}/{len(values)}", summarise(values)
    return Comparison(_agrees(kept == len(values)), rule, own.mean, own)


def _verdict(entry: Entry, answers: Sequence[Any]) -> Comparison:
    counts = Counter(answers).most_common()
    shares = ", ".join(f"{answer} {count}/{len(answers)}" for answer, count in counts)
    answer = counts[0][0] if len(counts) == 1 else shares
    published = plain(entry.value)
    return Comparison(_agrees(answer == published), f"every seed {published}: {shares}", answer)


def _order(numbers: Mapping[str, Sequence[float]]) -> Comparison:
    means = {run: summarise(values).mean for run, values in numbers.items()}
    falls = not any(_at_most(one, other) for one, other in pairwise(means.values()))
    ranked = sorted(means, key=means.__getitem__, reverse=True)
    order = ranked[0]
    for one, other in pairwise(ranked):
        order += " = " if _at_most(means[one], means[other]) else " > "
        order += other
    found = ", ".join(f"{run} {mean:.4g}" for run, mean in means.items())
    return Comparison(_agrees(falls), f"means must fall: {found}", order)


def _agrees(agrees: bool) -> str:
    return AGREES if agrees else DIFFERS


def _at_most(number: float, limit: float) -> bool:
    """Return whether a number is at most a limit, up to rounding: 0.635 - 0.615 is at most 0.02."""
    return number <= limit or math.isclose(number, limit, rel_tol=1e-9)
