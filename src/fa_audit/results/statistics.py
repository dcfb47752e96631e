"""Statistics of a few seeds, and the order of runs in tables and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from fa_audit.core.errors import AuditError
from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.intervals import t_interval


@dataclass(frozen=True)
class Summary:
    """Mean, sample deviation (divisor ``n - 1``) and 95 % t-interval of `n` values.

    Deviation and interval are None for one value.
    """

    n: int
    mean: float
    deviation: float | None
    interval: tuple[float, float] | None


def summarise(values: Iterable[float]) -> Summary:
    """Return mean, sample deviation and 95 % t-interval of independent values.

    >>> summary = summarise([0.50, 0.52, 0.54])
    >>> summary.n, round(summary.mean, 3), round(summary.deviation, 3)
    (3, 0.52, 0.02)
    >>> [round(end, 3) for end in summary.interval]
    [0.47, 0.57]

    Raises:
        AuditError: there are no values, or one is NaN or infinite. Callers report missing seeds.
    """
    given = list(map(float, values))
    if not given or not all(map(math.isfinite, given)):
        raise AuditError(f"summarise: found {given}; expected one or more finite numbers.")
    deviation = stdev(given) if len(given) > 1 else None
    return Summary(len(given), fmean(given), deviation, t_interval(given))


def extent(numbers: Iterable[float], write: Callable[[Any], str] = str) -> str:
    """Return the smallest and the largest number as text, or one of them if both look alike.

    The text is empty if there are no numbers.

    >>> extent([2, 3, 3]), extent([3, 3])
    ('2 to 3', '3')
    """
    known = pd.Series(numbers).dropna()
    if known.empty:
        return ""
    return " to ".join(dict.fromkeys(map(write, [known.min(), known.max()])))


def rank_runs(runs: pd.DataFrame) -> list[str]:
    """Sort run names by mean accuracy, best first, then by name; runs without accuracy are last."""
    # groupby sorts by name, and the stable sort keeps that order.
    means = runs.groupby("run")["accuracy"].mean()
    return means.sort_values(ascending=False, kind="stable", na_position="last").index.tolist()


def by_run(table: pd.DataFrame, order: Sequence[str], *keys: str) -> dict[str, pd.DataFrame]:
    """Group rows by run, in the given order of runs; sort each group by the columns `keys`."""
    return {run: table[table["run"] == run].sort_values(list(keys)) for run in order}


def without_penalty(run: str) -> str:
    """Return the run's name without its penalty; all runs of a penalty sweep share this name."""
    return str(replace(parse_run(run), penalty=0.0))


def whole(run: str) -> str:
    """Return the run's name without a snapshot's epoch; all snapshots of a run share this name."""
    return str(parse_run(run).whole)
