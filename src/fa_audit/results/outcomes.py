"""Outcomes of checks over many runs, from the boolean columns of the runs table; no verdict's text
is read.

The rules are those of `fa_audit.protocol.rules`, here for whole tables.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fa_audit.experiments.paths import AT_INPUT
from fa_audit.protocol.checks import lettered
from fa_audit.protocol.rules import FOUR, NON_FINITE, THREE, Rule, fires_of, is_finite
from fa_audit.results.tidy import Tidy


def reasons(runs: pd.DataFrame) -> pd.DataFrame:
    """Return whether each run is walked back for a, b, c, d or `NON_FINITE`; NA where a check was
    not evaluated.
    """
    found = {
        letter: runs[f"{check}_fires"].astype("boolean") for letter, check in lettered().items()
    }
    return pd.DataFrame(found | {NON_FINITE: ~runs["finite"].astype("boolean")})


def near_limit(runs: pd.DataFrame, check: str) -> np.ndarray:
    """Return for every run whether a check's interval contains its limit; False where nothing is
    known.

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
    rows = runs.to_dict("records")
    return pd.Series(
        [rule.decides(fires_of(row, rule.checks), is_finite(row)) for row in rows],
        runs.index,
        "boolean",
    )


def withdrawals(tidy: Tidy) -> pd.DataFrame:
    """Return what every strategy decides about every row of the runs table: 1 withdrawn, 0 kept,
    NaN without a number.

    Columns are the `STRATEGIES` of `fa_audit.results.figures.squares`.
    """
    runs, cosine = tidy.runs, tidy.mean_of_blocks(f"cosine{AT_INPUT}")
    accuracy, shallow = runs["accuracy"].astype(float), runs["shallow_acc"].astype(float)
    own = {
        "accuracy": accuracy.where(accuracy.isna(), 0.0),
        "cosine": (cosine <= 0).where(cosine.notna()),
        "shallow": (accuracy <= shallow).where(accuracy.notna() & shallow.notna()),
    }
    return pd.DataFrame(
        own | dict(reasons(runs)[list(lettered())]) | {"full": walked_back(runs)}
    ).astype(float)
