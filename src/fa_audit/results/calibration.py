"""Calibration of thresholds: how well each limit separates trusted runs from failing ones.

    trusted   methods bp and ep, trained on true targets: a check must not find fault with them
    failing   every other network that the three-check protocol fails (``FAIL``) for what the check
    is about: D3 for
              the depth margin, the regime (D1 and D2) for the others

A check that fires above its threshold separates them if the highest trusted value lies below the
lowest failing one; a check that fires below, if the lowest trusted value lies above the highest
failing one. Any threshold in that gap fires on every failing network and on no trusted one. The
failing group is chosen at the protocol's own thresholds, so that a gap is a finding. Imports
nothing that draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fa_audit.protocol.checks import CHECKS, of_limit
from fa_audit.protocol.limits import fires
from fa_audit.results.outcomes import fails, reasons
from fa_audit.results.statistics import with_margin

TRUSTED = ("bp", "ep")


@dataclass(frozen=True)
class Calibration:
    """The two values that a threshold would have to separate; None where a group is empty."""

    trusted: float | None  # nearest to firing among the networks that must not
    failing: float | None  # farthest from firing among the failing networks

    def gap(self, check: str) -> tuple[float, float] | None:
        """Return the thresholds that separate both groups, from and to; None if there are none."""
        if (
            self.trusted is None
            or self.failing is None
            or not fires(check, self.failing, self.trusted)
        ):
            return None
        low, high = sorted((self.trusted, self.failing))
        return low, high


def deciding_values(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the number that each check decides on, by the limits' names; NaN where it was not
    evaluated.

    Growth is a ratio, the reference a norm, stability a cosine, the depth margin a fraction.
    """
    gradient = runs["grad_norm_last"].astype(float)
    found = with_margin(runs).assign(grad_norm_last=gradient.where(np.isfinite(gradient)))
    return pd.DataFrame(
        {kind.limit: found[kind.column].astype(float) for kind in CHECKS.values() if kind.letter}
    )


def untrained(runs: pd.DataFrame) -> pd.Series:
    """Return which networks were never trained."""
    return (runs["epochs"] == 0) | runs["run"].str.endswith("+epoch0")


def calibrate(check: str, runs: pd.DataFrame, values: pd.Series) -> Calibration:
    """Return the edges of a check's calibration gap, as this file's first lines define it.

    Args:
        check: a name of `DiagnosticThresholds.limits`.
        runs: the runs table.
        values: of each run the number that the check decides on; NaN where it was not evaluated.
    """
    trusted = runs["method"].isin(TRUSTED) & ~runs["random_targets"].astype(bool) & ~untrained(runs)
    kind = of_limit(check)
    blamed = reasons(runs).fillna(False)[[kind.letter] if kind.paper else ["a", "b"]].any(axis=1)
    failing = fails(runs).fillna(False) & blamed & ~trusted
    groups = values[trusted].dropna(), values[failing].dropna()
    nearest, farthest = (max, min) if kind.side == "above" else (min, max)
    edges = (
        edge(group) if len(group) else None for edge, group in zip((nearest, farthest), groups)
    )
    return Calibration(*edges)
