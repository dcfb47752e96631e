"""Summarise a few seeds: mean, sample deviation, t-interval and n; and rank runs for display."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from fa_audit.core.errors import AuditError


@dataclass(frozen=True)
class Summary:
    """Mean and spread of one quantity over seeds.

    Attributes:
        n: number of values.
        mean: arithmetic mean.
        deviation: sample standard deviation, divisor ``n - 1``; None for one value.
        interval: two-sided Student-t confidence interval of the mean; None for one value.
    """

    n: int
    mean: float
    deviation: float | None
    interval: tuple[float, float] | None


def summarise(values: Iterable[float], *, confidence: float = 0.95) -> Summary:
    """Return mean, sample deviation and t-interval of independent values.

    >>> summary = summarise([0.50, 0.52, 0.54])
    >>> summary.n, round(summary.mean, 3), round(summary.deviation, 3)
    (3, 0.52, 0.02)
    >>> [round(end, 3) for end in summary.interval]
    [0.47, 0.57]

    Raises:
        AuditError: no values, or one that is NaN or infinite; a missing seed is the caller's to report.
    """
    array = np.asarray(list(values), dtype=float)
    if not array.size or not np.isfinite(array).all():
        raise AuditError(f"summarise: found {array.tolist()}; expected one or more finite numbers.")
    n, mean = array.size, float(array.mean())
    if n == 1:
        return Summary(1, mean, None, None)
    deviation = float(array.std(ddof=1))
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * deviation / math.sqrt(n)
    return Summary(n, mean, deviation, (mean - half, mean + half))


def rank_runs(runs: pd.DataFrame) -> list[str]:
    """Return the run names by mean accuracy, best first; equal ones by name, runs without any accuracy last."""
    means = runs.groupby("run")["accuracy"].mean()  # groupby sorts by name, and the stable sort keeps that order
    return means.sort_values(ascending=False, kind="stable", na_position="last").index.tolist()
