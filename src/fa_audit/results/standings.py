"""Standings that the leaderboard's table, figure and texts share: margins, costs, the order of
runs, their natures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fa_audit.core.errors import listed
from fa_audit.experiments.spec import short_number
from fa_audit.protocol.checks import CHECKS, lettered
from fa_audit.protocol.intervals import Interval
from fa_audit.protocol.limits import distance
from fa_audit.protocol.over_seeds import CheckOverSeeds, verdict_over_seeds
from fa_audit.results.statistics import margin_of, with_margin
from fa_audit.results.tidy import KEY, Tidy

# Optional columns of the table of work: whether other work lengthened the seconds; where it did,
# how many times as long as bp's a training step takes in the same network, both timed in turn.
BUSY, TIMES_BP = "beside_other_work", "times_bp"
LEVEL = 0.05  # of the tests that rank runs
SNAPSHOT = re.compile(r"\+epoch(\d+)")
NAMES = {"reference": "gradient", "depth": "depth"}  # of checks, where they differ from `CHECKS`
CHECKS_TEXT = ", ".join(
    f"{x} {NAMES.get(name, CHECKS[name].short.lower())}" for x, name in lettered().items()
)


def with_margins(tidy: Tidy) -> Tidy:
    """Return the tables, the runs with columns of what they are ranked by and of what they cost.

    ``margin``, ``bp_margin``: accuracy minus own frozen baseline, or bp's, fractions; ``rank``: see
        `with_ranks`;
    ``seconds``, ``device`` and `BUSY` of the training; ``cost``: its seconds over the mean of bp's
    in the same setting on the same device, or `TIMES_BP` where the seconds are `BUSY`; NaN where
    neither is known.
    """
    runs = with_margin(tidy.runs)
    work = tidy.work.reindex(columns=[*KEY, "seconds", "device", BUSY, TIMES_BP])
    work = work.astype({"seconds": float, "device": object, TIMES_BP: float})
    work = work.astype(runs.dtypes[list(KEY)].to_dict())  # an empty table has others
    runs = runs.merge(work, "left", on=list(KEY))
    alone = ~runs[BUSY].eq(True)
    bp = runs[as_published(runs) & (runs["method"] == "bp") & alone]
    of_bp = bp.groupby(["setting", "device"])["seconds"].mean().rename("of_bp")
    costs = runs["seconds"].where(alone) / runs.join(of_bp, on=["setting", "device"])[
        "of_bp"
    ].astype(float)
    bp_margin = margin_of(runs, "bp_frozen_acc", "depth_strict")
    runs = runs.assign(cost=costs.fillna(runs[TIMES_BP]), bp_margin=bp_margin)
    return replace(tidy, runs=with_ranks(runs))


def standing(tidy: Tidy) -> list[tuple[str, str]]:
    """Return every (setting, run): in each setting the highest mean accuracy first, equal ones by
    their names.
    """
    means = tidy.runs.groupby(["setting", "run"])["accuracy"].mean().fillna(-math.inf).reset_index()
    means = means.sort_values(["accuracy", "run"], ascending=[False, True])
    return [
        (setting, run)
        for setting in tidy.settings
        for run in means[means["setting"] == setting]["run"]
    ]


def with_ranks(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with ``rank``: 1 + the number of runs of the setting that are more accurate
    by `LEVEL`.

    Two runs are compared by the paired t-test of their accuracies over the seeds that both have,
    and the tests of a setting are corrected by Holm's method: runs that no test tells apart share a
    rank.
    """
    ranks: dict[tuple[str, str], int] = {}
    for setting, group in runs.groupby("setting"):
        accuracies = group.pivot_table("accuracy", "seed", "run").astype(float)
        tests = {pair: _paired(accuracies, *pair) for pair in permutations(accuracies.columns, 2)}
        above = _rejected({pair: p for pair, p in tests.items() if p is not None})
        for run in group["run"].unique():
            ranks[str(setting), run] = 1 + sum(run == worse for _, worse in above)
    return runs.assign(rank=[ranks[key] for key in zip(runs["setting"], runs["run"])])


def _paired(accuracies: pd.DataFrame, better: str, worse: str) -> float | None:
    """Return the two-sided p of a paired t-test if the first run has the higher mean; None if it
    has not.
    """
    differences = (accuracies[better] - accuracies[worse]).dropna()
    if differences.mean() <= 0 or len(differences) < 2:
        return None
    spread = differences.std() / math.sqrt(len(differences))
    return (
        2 * float(stats.t.sf(differences.mean() / spread, len(differences) - 1)) if spread else 0.0
    )


def _rejected(tests: Mapping[tuple[str, str], float]) -> list[tuple[str, str]]:
    """Return the pairs whose hypothesis Holm's method rejects at `LEVEL`."""
    rejected = []
    for left, (pair, p) in zip(
        range(len(tests), 0, -1), sorted(tests.items(), key=lambda test: test[1])
    ):
        if p > LEVEL / left:
            break
        rejected.append(pair)
    return rejected


def of_run(tidy: Tidy, setting: str, run: str) -> pd.DataFrame:
    """Return the rows of one run, its seeds in rising order."""
    return tidy.runs[(tidy.runs["setting"] == setting) & (tidy.runs["run"] == run)].sort_values(
        "seed"
    )


def nature(row: Mapping[str, Any]) -> str:
    """Return what a run is, in words: a method as it was published, or with what was changed.

    >>> nature({"run": "dfa+penalty1e-2", "penalty": 0.01, "frozen_blocks": 0, "depth": 4, "shallow": False,
    ...         "random_targets": False})
    'penalty 1e-2'
    """
    if pd.isna(row["penalty"]) or pd.isna(row["frozen_blocks"]):
        return "external model"
    frozen, depth = int(row["frozen_blocks"]), int(row["depth"])
    parts = {
        "shallow baseline": bool(row["shallow"]),
        "frozen baseline": frozen == depth > 0 and not row["shallow"],
        f"{frozen} of {depth} blocks frozen": 0 < frozen < depth,
        "random targets": bool(row["random_targets"]),
        f"penalty {short_number(float(row['penalty']))}": row["penalty"] > 0,
    }
    parts |= {f"after epoch {epoch}": True for epoch in SNAPSHOT.findall(row["run"])}
    return ", ".join(name for name, holds in parts.items() if holds) or "method"


def as_published(runs: pd.DataFrame) -> pd.Series:
    """Return whether each run is a method as it was published, with whatever learning rate."""
    return pd.Series([nature(row) == "method" for row in runs.to_dict("records")], runs.index, bool)


def checks_of(group: pd.DataFrame) -> dict[str, CheckOverSeeds]:
    """Return every check of a run over its seeds, by its letter; of one seed with that seed's own
    interval.

    Distances from the limit as in `fa_audit.protocol.limits.distance`: positive where a check does
    not fire.
    """
    checks = dict(verdict_over_seeds(group.to_dict("records")).checks)
    if len(group) == 1:
        row = group.iloc[0]
        checks = {
            x: replace(found, interval=_distances(row, lettered()[x]))
            for x, found in checks.items()
        }
    return checks


def _distances(row: pd.Series, check: str) -> Interval | None:
    """Return the interval of one seed as distances from the limit; the limit itself cancels out."""
    columns = [
        f"{check}_interval_low",
        f"{check}_interval_high",
        CHECKS[check].column,
        f"{check}_distance",
    ]
    *ends, value, far = row[columns].astype(float)
    if not np.isfinite([*ends, value, far]).all():
        return None
    low, high = sorted(far + distance(CHECKS[check].limit, end, value) for end in ends)
    return low, high


def learning_rates(tidy: Tidy, labels: Mapping[str, str]) -> str:
    """Say in one sentence what learning rates the runs had, as far as that is recorded."""
    runs = (
        tidy.runs.reindex(columns=["setting", "run", "lr"])
        .drop_duplicates()
        .sort_values(["setting", "run"])
    )
    known = runs.dropna()
    several = known[known.groupby("setting")["lr"].transform("nunique") > 1]
    if len(several):
        named = (
            several["run"].map(lambda run: labels.get(run, run))
            + " "
            + several["lr"].map(short_number)
        )
        each = (
            f"{labels.get(name, name)} ({listed([*of], 3)})"
            for name, of in named.groupby(several["setting"])
        )
        return f"Learning rates differ in {'; '.join(each)}."
    found = sorted(set(known["lr"]))
    rate = f" ({', '.join(map(short_number, found))})" if found else ""
    tuned = ", which differs between settings" if len(found) > 1 else ": none was tuned"
    unsaid = [labels.get(run, run) for run in dict.fromkeys(runs["run"][runs["lr"].isna()])]
    unknown = f" (unknown of {listed(unsaid, 3)})" if unsaid else ""
    return f"All methods of a setting share one learning rate{rate}{tuned}{unknown}."
