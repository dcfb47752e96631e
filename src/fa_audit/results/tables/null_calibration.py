"""Is a deep cosine alignment with the feedback that trained the network, or what any other feedback would give?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.tables.formats import Table
from fa_audit.results.tables.rows import ACCURACY, DEEP_COSINE, GRADIENT, Column, by_setting, run_table
from fa_audit.results.tidy import Tidy

# The cosine with the training feedback is that of float32 credits: draws that differ by less do not differ.
RESOLUTION = 1e-6
COLUMNS = (
    ACCURACY,
    DEEP_COSINE,
    Column("null mean", "fresh_b_mean", spread=("fresh_b_mean", "deviation"), decimals=3),
    Column("null deviation", "fresh_b_std", decimals=3),
    Column("z", "z", spread=("z", "deviation"), decimals=1, signed=True),
    Column("clamped cosine", "deep_clamped_cosine", spread=("deep_clamped_cosine", "deviation"), decimals=3),
    GRADIENT,
)
NOTE = (
    "Deep cosine: credit of the training feedback with the gradient, without epsilon, mean over the blocks l >= 1; "
    "null: mean and sample standard deviation of the same over 20 feedback draws that the network has never seen; z: "
    "deep cosine minus null mean, in null deviations, seed by seed (of 20 fresh draws 19 lie within ±1.96); clamped "
    "cosine: the deep cosine with norms clamped at 1e-8. All are means over seeds, ± their sample standard deviation; "
    "||g_L||: median over seeds. Methods without random feedback have no null, and draws that all give the same cosine "
    "no z."
)


def build(
    tidy: Tidy, *, labels: Mapping[str, str], title: str, thresholds: DiagnosticThresholds | None = None
) -> Table:
    """Return settings in the order in which they are listed, in each the best mean accuracy first."""
    calibrated = replace(tidy, runs=tidy.runs.assign(z=z_of(tidy.runs)))
    return run_table(calibrated, COLUMNS, rows=by_setting(tidy), caption=f"{title}. {NOTE}", labels=labels)


def z_of(runs: pd.DataFrame) -> pd.Series:
    """Return the distance of every deep cosine from its null, in deviations of the null; NaN where that has none."""
    cosine, mean, deviation = (runs[name].astype(float) for name in ("deep_cosine", "fresh_b_mean", "fresh_b_std"))
    return (cosine - mean) / deviation.where(deviation > RESOLUTION)
