"""Count the outcomes of checks over many runs, from the boolean columns of the runs table."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fa_audit.core.measured import AT_INPUT
from fa_audit.protocol.checks import four_checks
from fa_audit.protocol.judge import FOUR, NON_FINITE, THREE, Rule, judge
from fa_audit.results.tidy import Tidy


def reasons(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a column for every check of the four-check verdict, and `NON_FINITE`: whether it
    fires.

    NA if a check was not evaluated.
    """
    found = {}
    for label, check in four_checks().items():
        found[label] = runs[f"{check}_fires"].astype("boolean")
    found[NON_FINITE] = ~runs["finite"].astype("boolean")
    return pd.DataFrame(found)


def near_limit(runs: pd.DataFrame, check: str) -> np.ndarray:
    """Return for every run whether a check's interval contains its limit; False without an
    interval.

    Args:
        check: its name in an audit.
    """
    return runs[f"{check}_borderline"].map({True: True}).fillna(False).to_numpy(bool)


def walked_back(runs: pd.DataFrame) -> pd.Series:
    """Return whether the four-check verdict is walk-back (True), trustworthy (False) or incomplete
    (NA).
    """
    return _judged(runs, FOUR)


def fails(runs: pd.DataFrame) -> pd.Series:
    """Return whether the three-check verdict is FAIL (True), PASS (False) or INCOMPLETE (NA)."""
    return _judged(runs, THREE)


def _judged(runs: pd.DataFrame, rule: Rule) -> pd.Series:
    against = [judge([audit]).against(rule) for audit in runs["audit"]]
    return pd.Series(against, runs.index, "boolean")


def by_cosine(tidy: Tidy) -> pd.Series:
    """Return whether the mean cosine over all blocks is not above 0; NaN without one."""
    cosine = tidy.mean_of_blocks(f"cosine{AT_INPUT}")
    return (cosine <= 0).where(cosine.notna())


def withdrawals(tidy: Tidy) -> pd.DataFrame:
    """Return a column for every strategy: 1 if it withdraws the run's claim, 0 if not, NaN if
    unknown.

    The strategies are the `STRATEGIES` of `fa_audit.results.figures.squares`.
    """
    runs = tidy.runs
    accuracy, shallow = runs["accuracy"].astype(float), runs["shallow_acc"].astype(float)
    known = accuracy.notna() & shallow.notna()
    own = {
        "accuracy": accuracy.where(accuracy.isna(), 0.0),
        "cosine": by_cosine(tidy),
        "shallow": (accuracy <= shallow).where(known),
    }
    found = own | dict(reasons(runs)[list(four_checks())]) | {"full": walked_back(runs)}
    return pd.DataFrame(found).astype(float)
