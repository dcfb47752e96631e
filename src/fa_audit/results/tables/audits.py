"""The paper's tables: main audit, comparison of settings, variations, penalties, fresh feedback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from fa_audit.core.measured import AT_INPUT
from fa_audit.documents.formats import Number, Table
from fa_audit.experiments.spec import OWN_OPTIONS, short_number
from fa_audit.protocol.checks import CHECKS
from fa_audit.results.statistics import rank_runs, without_penalty
from fa_audit.results.tables.rows import (
    FOUR_CHECK,
    THREE_CHECK,
    Column,
    TextColumn,
    by_setting,
    run_table,
)
from fa_audit.results.tidy import Tidy

ACCURACY = Column("accuracy (%)", "accuracy", spread="deviation", scale=100, decimals=1)
_OWN_FROZEN = Column("own frozen (%)", "own_frozen_acc", scale=100, decimals=1)
_DEEP_COSINE = Column("deep cosine", f"deep_cosine{AT_INPUT}", spread="deviation", decimals=3)
_NULL_DEVIATION = Column("null deviation", f"fresh_b_std{AT_INPUT}", decimals=3)
GROWTH = Column("max growth", "max_growth", "max")
_GRADIENT = Column("median ||g_L||", "grad_norm_last", "median")


def _first_epoch(check: str) -> Column:
    heading = f"{CHECKS[check].label} from epoch"
    return Column(heading, f"first_{check}_flag", spread="deviation", decimals=1, absent="never")


_REGIME = (GROWTH, _GRADIENT, _first_epoch("scale"), _first_epoch("reference"))
_REGIME_NOTE = (
    "growth: largest over seeds; ||g_L||: median over seeds; D1, D2 from epoch: the first epoch at "
    "which the check fires, mean ± sample standard deviation over the seeds in which it does."
)
_FOUR_CHECK_NOTE = (
    "Four-check: the verdict over all seeds, decided by each check's mean distance from its limit;"
    " then the number of seeds with the same verdict, whichever checks fire."
    " Borderline: the t-interval of a distance contains 0. Distances are in decades for growth and"
    " gradient, and plain differences for the other checks."
)

_MAIN_AUDIT = (
    ACCURACY,
    _OWN_FROZEN,
    Column("margin (points)", "margin", scale=100, decimals=1, signed=True),
    Column("bp+frozen (%)", "bp_frozen_acc", scale=100, decimals=1),
    GROWTH,
    _GRADIENT,
    THREE_CHECK,
    FOUR_CHECK,
)
_MAIN_AUDIT_NOTE = (
    "Accuracy: mean ± sample standard deviation over seeds; frozen baselines: means over seeds;"
    " margin: accuracy minus own frozen baseline, seed by seed; growth: largest over seeds; "
    f"||g_L||: median over seeds. {_FOUR_CHECK_NOTE}"
)


def main_audit(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return accuracy, frozen baselines, state growth, gradient and verdicts of one setting."""
    return run_table(tidy, _MAIN_AUDIT, caption=f"{title}. {_MAIN_AUDIT_NOTE}", labels=labels)


_COMPARISON = (ACCURACY, _OWN_FROZEN, *_REGIME, THREE_CHECK, FOUR_CHECK)
_COMPARISON_NOTE = (
    "Accuracy: mean ± sample standard deviation over seeds; own frozen baseline of the same "
    f"setting: mean over seeds; {_REGIME_NOTE} {_FOUR_CHECK_NOTE}"
)


def comparison(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per setting and run, to compare architectures, data sets or controls."""
    return run_table(tidy, _COMPARISON, caption=f"{title}. {_COMPARISON_NOTE}", labels=labels)


SIZES = ("width", "depth", "epochs", "lr", *OWN_OPTIONS)
_VARIATION = (ACCURACY, _OWN_FROZEN, _DEEP_COSINE, *_REGIME, THREE_CHECK)
_VARIATION_NOTE = (
    "Accuracy and deep cosine (credit with gradient, mean over samples and over blocks l >= 1):"
    " mean ± sample standard deviation over seeds; own frozen baseline of the same network and "
    f"budget: mean over seeds; {_REGIME_NOTE}"
)


def variation(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per run and setting.

    Width, depth, epochs and training options get columns if they differ between settings. Rows are
    sorted by the run's mean accuracy, best first, then by these columns.
    """
    order = rank_runs(tidy.runs)
    first = tidy.runs.drop_duplicates("setting").set_index("setting")
    varied = [name for name in SIZES if name in first and first[name].nunique() > 1]

    def place(row: tuple[str, str]) -> tuple[Any, ...]:
        setting, run = row
        return (order.index(run), *first.loc[setting, varied])

    columns = (*map(_option, varied), *_VARIATION)
    rows = sorted(by_setting(tidy), key=place)
    caption = f"{title}. {_VARIATION_NOTE}"
    table = run_table(tidy, columns, rows=rows, caption=caption, labels=labels)
    if not varied or first.duplicated(varied).any():
        return table
    # The varied columns tell the settings apart, so leave out the column of their names.
    unnamed = tuple(row[1:] for row in table.rows)
    return replace(table, columns=table.columns[1:], rows=unnamed)


def _option(name: str) -> TextColumn:
    def cell(group: Any) -> str | Number:
        value = group[name].iloc[0]
        if isinstance(value, str):
            return value
        return Number(float(value), decimals=0 if float(value).is_integer() else None)

    return TextColumn(name, cell)


_PENALTY = (
    ACCURACY,
    _DEEP_COSINE,
    Column("fresh-B null", f"fresh_b_mean{AT_INPUT}", decimals=3),
    _NULL_DEVIATION,
    Column("deep rho", f"deep_rho{AT_INPUT}", spread="deviation", decimals=3),
    Column("nudging (nats)", f"deep_nudging{AT_INPUT}"),
    GROWTH,
    Column("median ||h_L||", "hidden_norm_last", "median"),
    _GRADIENT,
    THREE_CHECK,
)
_PENALTY_NOTE = (
    "Accuracy, deep cosine (credit with gradient) and deep rho (perturbation correlation): mean "
    "± sample standard deviation over seeds; fresh-B null (the deep cosine with 20 feedback "
    "draws that the network has never seen): mean and standard deviation of the draws, averaged "
    "over seeds; nudging (change of the loss by a step against the credit, negative if it "
    "helps): mean over seeds; growth: largest over seeds; ||h_L||, ||g_L||: median over seeds. "
    "Deep: mean over the blocks l >= 1."
)


def penalty(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per method and penalty.

    Rows are sorted by the method's mean accuracy over all penalties, then by penalty. The keys of
    `labels` are methods: names of runs without the penalty.
    """
    penalties = tidy.runs.set_index("run")["penalty"].to_dict()
    methods = {run: without_penalty(run) for run in penalties}
    order = rank_runs(tidy.runs.assign(run=tidy.runs["run"].map(methods)))
    runs = sorted(penalties, key=lambda run: (order.index(methods[run]), penalties[run]))
    named = {}
    for run in runs:
        text = short_number(penalties[run]) if penalties[run] else "0"
        named[run] = f"{labels.get(methods[run], methods[run])}, {text}"
    rows, caption = product(tidy.settings, runs), f"{title}. {_PENALTY_NOTE}"
    table = run_table(tidy, _PENALTY, rows=rows, caption=caption, labels=named)
    return replace(table, columns=("method, penalty", *table.columns[1:]))


# Cosines of float32 credits count as equal if they differ by less than this.
_RESOLUTION = 1e-6
_NULL_CALIBRATION = (
    ACCURACY,
    _DEEP_COSINE,
    Column("null mean", f"fresh_b_mean{AT_INPUT}", spread="deviation", decimals=3),
    _NULL_DEVIATION,
    Column("z", "z", spread="deviation", decimals=1, signed=True),
    Column("clamped cosine", f"deep_clamped_cosine{AT_INPUT}", spread="deviation", decimals=3),
    _GRADIENT,
)
_NULL_CALIBRATION_NOTE = (
    "Deep cosine: cosine of gradient and credit under the training feedback, norms not clamped, "
    "mean over the blocks l >= 1; null: its mean and sample standard deviation over 20 feedback "
    "draws that the network has never seen; z: deep cosine minus null mean, divided by the null "
    "deviation, seed by seed (about 95 % of fresh draws lie within ±1.96); clamped cosine: "
    "the deep cosine with norms clamped at 1e-8. All are means over seeds, ± their sample standard "
    "deviation; ||g_L||: median over seeds. Methods without random feedback have no null; draws "
    "that all give the same cosine have no z."
)


def null_calibration(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return each run's cosine in deep blocks, and the cosine under fresh random feedback."""
    runs, caption = tidy.runs, f"{title}. {_NULL_CALIBRATION_NOTE}"
    deviation = runs[f"fresh_b_std{AT_INPUT}"]
    above = runs[f"deep_cosine{AT_INPUT}"] - runs[f"fresh_b_mean{AT_INPUT}"]
    z = above / deviation.where(deviation > _RESOLUTION)
    shown = replace(tidy, runs=runs.assign(z=z))
    return run_table(shown, _NULL_CALIBRATION, caption=caption, labels=labels)
