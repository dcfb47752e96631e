"""The penalty sweep: does the residual penalty restore scale and reference, and is the credit worth something then?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.experiments.spec import parse_run, short_number
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tables.formats import Table
from fa_audit.results.tables.rows import ACCURACY, DEEP_COSINE, GRADIENT, GROWTH, THREE_CHECK, Column, run_table
from fa_audit.results.tidy import Tidy

COLUMNS = (
    ACCURACY,
    DEEP_COSINE,
    Column("fresh-B null", "fresh_b_mean", spread=("fresh_b_std", "mean"), decimals=3),
    Column("deep rho", "deep_rho", spread=("deep_rho", "deviation"), decimals=3),
    Column("nudging (nats)", "deep_nudging"),
    GROWTH,
    Column("median ||h_L||", "hidden_norm_last", "median"),
    GRADIENT,
    THREE_CHECK,
)
NOTE = (
    "Accuracy, deep cosine (credit with gradient) and deep rho (perturbation correlation): mean ± sample standard "
    "deviation over seeds; fresh-B null (the deep cosine with 20 feedback draws that the network has never seen): mean "
    "± standard deviation of the draws, both averaged over seeds; nudging (change of the loss by a step along the "
    "credit, negative where it helps): mean over seeds; growth: largest over seeds; ||h_L||, ||g_L||: median over "
    "seeds. Deep: mean over the blocks l >= 1."
)


def build(
    tidy: Tidy, *, labels: Mapping[str, str], title: str, thresholds: DiagnosticThresholds | None = None
) -> Table:
    """Return one row per method and penalty: methods by mean accuracy over all penalties, the penalty rising.

    Labels are those of methods, i.e. of runs without their penalty.
    """
    runs = {run: parse_run(run) for run in tidy.runs["run"].unique()}
    methods = {run: str(replace(asked, penalty=0.0)) for run, asked in runs.items()}
    order = rank_runs(tidy.runs.assign(run=tidy.runs["run"].map(methods)))
    rows = sorted(runs, key=lambda run: (order.index(methods[run]), runs[run].penalty))
    named = {run: f"{labels.get(methods[run], methods[run])}, {_number(runs[run].penalty)}" for run in runs}
    table = run_table(
        tidy, COLUMNS, rows=[(tidy.settings[0], run) for run in rows], caption=f"{title}. {NOTE}", labels=named
    )
    return replace(table, columns=("method, penalty", *table.columns[1:]))


def _number(penalty: float) -> str:
    return short_number(penalty) if penalty else "0"
