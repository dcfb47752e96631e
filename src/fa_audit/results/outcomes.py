"""Outcomes of checks over many runs, from the boolean columns of the runs table; no verdict's text is read.

The rules are those of `fa_audit.audit.verdicts`, here for whole tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fa_audit.core.thresholds import NON_FINITE
from fa_audit.results.over_seeds import CHECKS


def reasons(runs: pd.DataFrame) -> pd.DataFrame:
    """Return whether each run is walked back for a, b, c, d or `NON_FINITE`; NA where a check was not evaluated."""
    found = {letter: runs[f"{check}_fires"].astype("boolean") for letter, check in CHECKS.items()}
    return pd.DataFrame(found | {NON_FINITE: ~runs["finite"].astype("boolean")})


def is_borderline(runs: pd.DataFrame, check: str) -> np.ndarray:
    """Return of every run whether a check, by its name in an audit, is borderline; False where nothing is known."""
    return runs[f"{check}_borderline"].map({True: True}).fillna(False).to_numpy(bool)


def walked_back(runs: pd.DataFrame) -> pd.Series:
    """Return whether the four-check verdict is walk-back (True), trustworthy (False) or incomplete (NA)."""
    return _answered(reasons(runs), fails=reasons(runs).any(axis=1))


def fails(runs: pd.DataFrame) -> pd.Series:
    """Return whether the three-check verdict is FAIL (True), PASS (False) or INCOMPLETE (NA)."""
    found = reasons(runs)[["a", "b", "d", NON_FINITE]]
    fired = found.fillna(False)
    return _answered(found, fails=(fired["a"] & fired["b"]) | fired["d"] | fired[NON_FINITE])


def four_check(audit: Mapping[str, Any]) -> str:
    """Return the four-check verdict of one audit without its reasons."""
    found = [audit["checks"][check]["fires"] for check in CHECKS.values()]
    if any(found) or not audit["finite"]:
        return "needs walk-back"
    return "incomplete" if None in found else "trustworthy"


def _answered(found: pd.DataFrame, *, fails: pd.Series) -> pd.Series:
    return fails.astype("boolean").where(fails | found.notna().all(axis=1))
