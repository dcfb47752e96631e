"""Outcomes of the checks for many runs, and the claims withdrawn under each kind of report."""

from __future__ import annotations

import pandas as pd

from fa_audit.core.measured import AT_INPUT
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.judge import FOUR, NON_FINITE, Judgement
from fa_audit.results.tidy import Tidy


def reasons(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a column for each check of the four-check verdict: whether it fires, NA if it was not
    evaluated.

    The last column, `NON_FINITE`, is true if a state, gradient or logit is not finite.
    """
    found = {}
    for name in FOUR.checks:
        found[CHECKS[name].label] = runs[f"{name}_fires"].astype("boolean")
    found[NON_FINITE] = ~runs["finite"].astype("boolean")
    return pd.DataFrame(found)


def firing(judgement: Judgement) -> list[str]:
    """Return the labels of the checks of the four-check verdict that fire or are borderline;
    borderline ones end in ``?``.
    """
    labels = []
    for name in FOUR.checks:
        found = judgement[name]
        if found.fires or found.borderline:
            labels.append(found.kind.label + "?" * found.borderline)
    return labels


def by_cosine(tidy: Tidy) -> pd.Series:
    """Return whether the mean cosine over all blocks is 0 or less; NaN for runs without cosines."""
    cosine = tidy.mean_of_blocks(f"cosine{AT_INPUT}")
    return (cosine <= 0).where(cosine.notna())


def withdrawals(tidy: Tidy) -> pd.DataFrame:
    """Return whether each run's claim would be withdrawn: 1 if so, 0 if not, NaN if unknown.

    There is a column for each kind of report; the figure ``decision_utility`` explains the kinds.
    """
    runs = tidy.runs
    accuracy, shallow = runs["accuracy"], runs["shallow_acc"]
    found = (
        reasons(runs)
        .drop(columns=NON_FINITE)
        .assign(
            accuracy=accuracy.where(accuracy.isna(), 0.0),
            cosine=by_cosine(tidy),
            shallow=(accuracy <= shallow).where(accuracy.notna() & shallow.notna()),
            full=[Judgement([audit]).against(FOUR) for audit in runs["audit"]],
        )
    )
    return found.astype(float)
