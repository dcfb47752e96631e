"""The main audit: one row per run with accuracy, frozen baselines, scale, reference gradient and both verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fa_audit.core.thresholds import DiagnosticThresholds, depth_margin
from fa_audit.results.tables.formats import Table
from fa_audit.results.tables.rows import (
    ACCURACY,
    FOUR_CHECK,
    GRADIENT,
    GROWTH,
    OWN_FROZEN,
    THREE_CHECK,
    Column,
    by_setting,
    run_table,
)
from fa_audit.results.tidy import Tidy

COLUMNS = (
    ACCURACY,
    OWN_FROZEN,
    Column("margin (points)", "margin", scale=100, decimals=1, signed=True),
    Column("bp+frozen (%)", "bp_frozen_acc", scale=100, decimals=1),
    GROWTH,
    GRADIENT,
    THREE_CHECK,
    FOUR_CHECK,
)
NOTE = (
    "Accuracy: mean ± sample standard deviation over seeds; frozen baselines: means over seeds; margin: accuracy "
    "minus own frozen baseline, seed by seed; growth: largest over seeds; ||g_L||: median over seeds."
)


def build(
    tidy: Tidy, *, labels: Mapping[str, str], title: str, thresholds: DiagnosticThresholds | None = None
) -> Table:
    """Return the table of one setting, best mean accuracy first."""
    runs = tidy.runs.astype({"accuracy": float, "own_frozen_acc": float})
    audited = replace(tidy, runs=runs.assign(margin=depth_margin(runs["accuracy"], runs["own_frozen_acc"])))
    return run_table(audited, COLUMNS, rows=by_setting(tidy), caption=f"{title}. {NOTE}", labels=labels)
