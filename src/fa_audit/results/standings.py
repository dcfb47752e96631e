"""Compute the columns of the board: margins over frozen blocks, and ranks with ties."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from fa_audit.core.errors import AuditError
from fa_audit.results.tidy import KEY, Tidy

LEVEL = 0.05  # significance level of the tests that rank runs
# The parts of a run's name for learning rate and normalisation.
TRAINING = r"\+lr[\d.e-]+|\+unnormalised"


def with_standings(tidy: Tidy) -> Tidy:
    """Remove the baselines, and add the board's columns to the table of runs.

    ``rule``: the run's name, without learning rate and normalisation unless they tell runs apart.
    ``rank``: the rank within the setting, see `ranks`.
    ``own_frozen``, ``margin``, ``bp_margin``: fractions, see `_with_baselines`.

    Raises:
        AuditError: all runs are baselines.
    """
    runs = _with_baselines(tidy.runs.sort_values(KEY))
    if runs.empty:
        raise AuditError("board: found baselines only; expected runs of a rule.")
    rules = runs["run"].str.replace(TRAINING, "", regex=True)
    is_alone = runs.groupby(["setting", rules])["run"].transform("nunique") == 1
    # In all settings alike: figures and tables name a run once.
    is_alone = is_alone.groupby(runs["run"]).transform("all")
    runs = runs.assign(rule=rules.where(is_alone, runs["run"]), rank=math.nan)
    for setting, group in runs.groupby("setting"):
        ranked = ranks(group.pivot_table("accuracy", "seed", "run"))
        runs.loc[runs["setting"] == setting, "rank"] = group["run"].map(ranked)
    return replace(tidy, runs=runs).of(*tidy.settings)  # without settings that have baselines only


def _with_baselines(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the trained runs with two margins: over their own frozen baseline, and over bp+frozen.

    A baseline is a run with frozen blocks in the same setting; its learning rate may differ. The
    baseline in the run's audit is used if it is more accurate, or if there is no other.
    """
    shallow = runs["shallow"].eq(True)
    is_frozen = runs["frozen_blocks"].eq(runs["depth"]) & (runs["depth"] > 0) & ~shallow
    # Snapshots use the baselines in their audits: they are of the same epoch.
    is_whole = ~runs["run"].str.contains("+epoch", regex=False) & runs["stopped_after"].isna()
    frozen = runs[is_frozen & is_whole & ~runs["random_targets"].eq(True)]
    # If there are several baselines, take the most accurate: a weak one makes the margin too large.
    network = ["setting", "seed", "method"]
    measured = frozen.groupby(network)["accuracy"].max()
    keys = runs[network]
    columns = {}
    for name, margin, check, asked in (
        ("own_frozen", "margin", "depth", keys),
        ("bp_frozen", "bp_margin", "depth_strict", keys.assign(method="bp")),
    ):
        own = runs[f"{name}_acc"].where(runs[f"{check}_fires"].notna())
        found = asked.join(measured, on=network)["accuracy"]
        columns[name] = np.fmax(found.where(is_whole), own)
        columns[margin] = runs["accuracy"] - columns[name]
    return runs.assign(**columns)[~is_frozen & ~shallow]


def _difference(one: pd.Series, other: pd.Series) -> tuple[float, float, float]:
    """Return the difference of two means, its standard error and the degrees of freedom."""
    paired = (one - other).dropna()
    if len(paired) > 1:
        return paired.mean(), paired.sem(), len(paired) - 1
    squares = np.array([one.sem() ** 2, other.sem() ** 2])
    total = squares.sum()
    degrees = total**2 / (squares**2 / [one.count() - 1, other.count() - 1]).sum() if total else 1.0
    return one.mean() - other.mean(), math.sqrt(total), degrees


def ranks(accuracies: pd.DataFrame) -> dict[str, int]:
    """Return every run's rank: its place in the order of mean accuracies, with ties.

    Two runs are compared by the paired t-test of their accuracies over the seeds that both have, or
    by Welch's test if both have fewer than two; at `LEVEL`, corrected for all pairs by Holm's
    method. Run b shares the rank of the run before b, unless a test finds a run of that rank more
    accurate than b.

    Args:
        accuracies: a row for every seed, a column for every run. A run with a single seed has no
            rank, since no test can compare it.
    """
    accuracies = accuracies.loc[:, accuracies.count() > 1]
    tests = []
    for better, worse in combinations(accuracies.columns, 2):
        distance, spread, degrees = _difference(accuracies[better], accuracies[worse])
        if distance < 0:
            better, worse = worse, better
        # Not scipy's tests, which warn of numbers that are nearly equal.
        t = 0.0
        if distance:
            t = abs(distance) / spread if spread else math.inf
        tests.append((2 * stats.t.sf(t, degrees), better, worse))
    tests.sort()
    apart = set()
    for place, (p, *pair) in enumerate(tests):
        if p > LEVEL / (len(tests) - place):
            break
        apart.add(tuple(pair))
    order = accuracies.mean().sort_values(ascending=False, kind="stable").index
    found: dict[str, int] = {}
    rank = 1
    for place, run in enumerate(order, start=1):
        tied = [other for other in found if found[other] == rank]
        if any((other, run) in apart for other in tied):
            rank = place
        found[run] = rank
    return found
