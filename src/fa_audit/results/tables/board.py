"""The board: rules ranked by accuracy, with margins, checks, costs and published claims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd
import yaml

from fa_audit.core.errors import AuditError
from fa_audit.documents.formats import Number, Table
from fa_audit.experiments.spec import short_number
from fa_audit.results.standings import with_standings
from fa_audit.results.tables.rows import CHECKS, FIRES, Column, TextColumn, run_table
from fa_audit.results.tidy import Tidy

TOLERANCE = 0.01  # sources round: a rule at most this far below its source's accuracy reaches it
_NOTE = (
    "Each network's rules by accuracy: means over n seeds with 95 % t-intervals. Rank: a rule"
    " has the rank of the rule above unless a paired t-test over the seeds (5 %, Holm over all"
    " pairs) finds it less accurate than some rule of that rank; a single seed gives no rank."
    " Own frozen: the rule's accuracy with frozen blocks. Margins, seed by seed, in points:"
    " accuracy minus own frozen, and accuracy minus that of bp+frozen. Checks: outcome over the"
    " seeds; mean distance from the limit with its 95 % interval (growth and gradient in"
    " decades, stability as a cosine, depth in points; negative if the check fires); in how many"
    " seeds it fires. A check is borderline if the interval contains 0. Cost: time of a training"
    " step as a multiple of bp's, on the residual MLP (d = 256, L = 4) with one CPU thread."
    " Claim: what a source reports for the rule on its own network and budget, and for"
    " backpropagation (BP) there."
)


def _points(heading: str, quantity: str, *, signed: bool = True) -> Column:
    return Column(heading, quantity, spread="interval", scale=100, decimals=1, signed=signed)


def _rates(group: pd.DataFrame) -> str:
    return ", ".join(short_number(float(rate)) for rate in sorted(group["lr"].dropna().unique()))


def _cost(group: pd.DataFrame) -> Number | str:
    cost = _measured_costs().get(group["method"].iloc[0])
    return "" if cost is None else Number(cost, decimals=1)


_WORTH = (
    Column("rank", "rank", decimals=0),
    _points("accuracy (%)", "accuracy", signed=False),
    Column("own frozen (%)", "own_frozen", scale=100, decimals=1),
    _points("margin", "margin"),
    _points("over bp+frozen", "bp_margin"),
)
_COST = TextColumn("cost (x bp)", _cost)
SHOWN = (*_WORTH, CHECKS, TextColumn("lr", _rates), _COST)
_IN_TERMINAL = (*_WORTH, FIRES, _COST)


@cache
def _measured_costs() -> dict[str, float]:
    """Read each method's time per step, relative to bp, from ``benchmarks/methods.json``."""
    text = files("fa_audit").joinpath("provided/benchmarks/methods.json").read_text("utf-8")
    return {name: row["relative_to_bp"] for name, row in json.loads(text)["methods"].items()}


@cache
def claims_of_sources() -> dict[str, dict[str, Any]]:
    """Read the sources' claims from ``methods/claims.yaml``, by method."""
    text = files("fa_audit.methods").joinpath("claims.yaml").read_text("utf-8")
    return dict(yaml.safe_load(text))


def board(tidy: Tidy, *, title: str, labels: Mapping[str, str], narrow: bool = False) -> Table:
    """Return one row per network and rule; in each network the highest accuracy comes first.

    Settings that claims.yaml names get no row. In them a rule was trained on the network of
    its source, such as a paper, to see whether the rule reaches the accuracy reported there.

    Args:
        narrow: shorten the table for a terminal: only the checks that fire, no claims.

    Raises:
        AuditError: all runs are baselines, or claims.yaml names all settings.
    """
    ranked = with_standings(tidy)
    trained = tidy.runs[~tidy.runs["run"].str.contains("+frozen", regex=False)]
    accuracies = trained.groupby(["setting", "method"])["accuracy"].mean()
    shown = without_sources(ranked)
    if not shown.settings:
        raise AuditError(
            "board: found only settings named in claims.yaml, which get no row; expected others."
        )

    def reached(group: pd.DataFrame) -> str:
        return _reached(group["method"].iloc[0], accuracies)

    columns = (*SHOWN, TextColumn("claim", _claim), TextColumn("reaches it", reached))
    named = {
        run: labels.get(rule, rule) for run, rule in zip(shown.runs["run"], shown.runs["rule"])
    }
    return run_table(
        shown,
        _IN_TERMINAL if narrow else columns,
        caption=f"{title}. {_NOTE}",
        labels=named | dict(labels),
    )


def without_sources(tidy: Tidy) -> Tidy:
    """Return the tables of the settings that claims.yaml does not name."""
    sources = {entry.get("setting") for entry in claims_of_sources().values()}
    return tidy.of(*(name for name in tidy.settings if name not in sources))


def _claim(group: pd.DataFrame) -> str:
    """Return a source's claim about a rule, in one line."""
    entry = claims_of_sources().get(group["method"].iloc[0])
    if entry is None:
        return "none"
    if "network" not in entry:
        return f"{entry['source']}: {entry['where']}"
    measure = "error" if "error" in entry else "accuracy"
    bp = f" (BP {entry['bp']:g})" if "bp" in entry else ""
    figure = f"{entry['source']}: {measure} {entry[measure]:g} %{bp}"
    return f"{figure}, {entry['network']}, {entry['data']}; {entry['where']}"


def _reached(method: str, accuracies: pd.Series) -> str:
    """Say whether a rule reaches the accuracy that its source reports, on the source's network."""
    entry = claims_of_sources().get(method, {})
    accuracy = accuracies.get((entry.get("setting"), method))
    if accuracy is None:
        return entry.get("checked", "not checked against its source" if entry else "none")
    claimed = entry["accuracy"] if "accuracy" in entry else 100 - entry["error"]
    answer = "yes" if 100 * (accuracy + TOLERANCE) >= claimed else "no"
    bp = accuracies.get((entry["setting"], "bp"))
    beside = "" if bp is None else f" (BP {100 * bp:.1f})"
    return f"{answer}: {100 * accuracy:.1f} %{beside} here, {claimed:g} % claimed"
