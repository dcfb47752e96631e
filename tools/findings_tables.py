"""Tables of docs/findings.md: numbers with intervals over seeds; baselines side by side; how often
each check fires, and fires alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from fa_audit.documents.formats import Table
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.judge import FOUR
from fa_audit.results.tables.rows import THREE_CHECK, Column, run_table
from fa_audit.results.tidy import KEY, Tidy

FINDINGS = (
    Column("accuracy (%)", "accuracy", spread="interval", scale=100, decimals=1),
    Column(
        "margin over own frozen (points)",
        "margin",
        spread="interval",
        scale=100,
        decimals=1,
        signed=True,
    ),
    Column("log10 max growth", "log_growth", spread="interval", decimals=2),
    Column("log10 ||h_L|| / ||h_0||", "log_total_growth", spread="interval", decimals=2),
    Column("log10 ||h_L||", "log_state", spread="interval", decimals=2),
    Column("deep rho", "deep_rho_at_input", spread="interval", decimals=3),
    Column("deep rho, float32", "deep_rho_float32", spread="interval", decimals=3),
    THREE_CHECK,
)
FINDINGS_NOTE = (
    "Means over seeds with 95 % t-intervals; a single seed has none. Margin: accuracy minus own "
    "frozen baseline, seed by seed; max growth: largest ||h_l+1|| / ||h_l||; deep: mean over the "
    "blocks l >= 1; rho: perturbation correlation at the block's input, in float64 and in float32, "
    "from the same checkpoint."
)


def findings(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return a row for every run of every setting: the verdict; and accuracy, margin, growth, rho
    and the last state's norm, each with its interval.
    """
    table = replace(tidy, runs=with_derived(tidy))
    return run_table(table, FINDINGS, caption=f"{title}. {FINDINGS_NOTE}", labels=labels)


def with_derived(tidy: Tidy) -> pd.DataFrame:
    """Return the runs with margin, logarithms of norms and growths, and the float32 rho of deep
    blocks.
    """
    runs = tidy.runs.set_index(KEY).sort_index()
    layers = tidy.layers.sort_values([*KEY, "layer"])
    first = layers[layers["layer"] == 0].set_index(KEY)["hidden_norm"]
    deep = layers[layers["layer"] > 0].groupby(KEY)["rho_float32_at_input"].mean()
    logarithms = {
        "log_growth": runs["max_growth"],
        "log_total_growth": runs["hidden_norm_last"] / first,
        "log_state": runs["hidden_norm_last"],
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        derived = {name: np.log10(values.astype(float)) for name, values in logarithms.items()}
    return runs.assign(deep_rho_float32=deep, **derived).reset_index()


BASELINES = (
    Column("accuracy (%)", "accuracy", spread="interval", scale=100, decimals=1),
    Column("own frozen (%)", "own_frozen_acc", spread="interval", scale=100, decimals=1),
    Column("bp+frozen (%)", "bp_frozen_acc", spread="interval", scale=100, decimals=1),
    Column("bp+shallow (%)", "shallow_acc", spread="interval", scale=100, decimals=1),
)
BASELINES_NOTE = (
    "Means over seeds with 95 % t-intervals. Own frozen: blocks at initialisation, embedding and "
    "head trained by the method; bp+frozen: the same by backpropagation; bp+shallow: no blocks."
)


def baselines(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return every method's accuracy and the accuracies of its baselines."""
    runs = tidy.runs.astype({column.quantity: float for column in BASELINES})
    shown = replace(tidy, runs=runs)
    return run_table(shown, BASELINES, caption=f"{title}. {BASELINES_NOTE}", labels=labels)


TITLES = {name: CHECKS[name].title for name in FOUR.checks}
DECIDING_NOTE = (
    "Fires: audits in which the check fires; alone: those in which no other of the four checks "
    "fires. Audits without baselines have no D3, and count with their other three checks."
)


def deciding_checks(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return for every setting how often each of the four checks fires, and how often it is the
    only one.
    """
    fires = tidy.runs[[f"{check}_fires" for check in TITLES]].eq(True)
    fires.columns = list(TITLES)
    alone = fires.mul(fires.sum(axis=1) == 1, axis=0)
    rows, values = [], []
    for setting, check in product(tidy.settings, TITLES):
        own = tidy.runs["setting"] == setting
        audits, fired, only = own.sum(), fires.loc[own, check].sum(), alone.loc[own, check].sum()
        name = labels.get(setting, setting)
        rows.append((name, TITLES[check], f"{fired}/{audits}", f"{only}/{audits}"))
        values.append((setting, check, audits, fired, only))
    table = pd.DataFrame(values, columns=["setting", "check", "audits", "fires", "alone"])
    heads = ("setting", "check", "fires", "alone")
    return Table(f"{title}. {DECIDING_NOTE}", heads, tuple(rows), table)
