"""What a few seeds say: mean, sample deviation, t-interval and n; and the order in which runs are shown."""

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
    """Mean, sample deviation and t-interval of independent values.

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
    """The run names by mean accuracy, best first; equal ones by name, runs without any accuracy last."""
    means = runs.groupby("run")["accuracy"].mean()  # groupby sorts by name, and the stable sort keeps that order
    return means.sort_values(ascending=False, kind="stable", na_position="last").index.tolist()
