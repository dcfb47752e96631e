"""A setting at several depths, widths or numbers of epochs: how every run changes with it."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tables.formats import Table
from fa_audit.results.tables.rows import (
    ACCURACY,
    DEEP_COSINE,
    FIRST_FLAGS_NOTE,
    FIRST_REFERENCE,
    FIRST_SCALE,
    GRADIENT,
    GROWTH,
    OWN_FROZEN,
    THREE_CHECK,
    by_setting,
    run_table,
)
from fa_audit.results.tidy import Tidy

SIZES = ("width", "depth", "epochs")
COLUMNS = (ACCURACY, OWN_FROZEN, DEEP_COSINE, GROWTH, GRADIENT, FIRST_SCALE, FIRST_REFERENCE, THREE_CHECK)
NOTE = (
    "Accuracy and deep cosine (credit with gradient at the block's input, mean over samples and over blocks l >= 1): "
    "mean ± sample standard deviation over seeds; own frozen baseline of the same network and budget: mean over seeds; "
    f"growth: largest over seeds; ||g_L||: median over seeds; {FIRST_FLAGS_NOTE}"
)


def build(
    tidy: Tidy, *, labels: Mapping[str, str], title: str, thresholds: DiagnosticThresholds | None = None
) -> Table:
    """Return runs by mean accuracy over all settings, in each the settings by what varies, rising.

    Settings differ in width, depth or epochs; others are led by their labels.
    """
    sizes = tidy.runs.drop_duplicates("setting").set_index("setting")[list(SIZES)]
    varied = varied_in(sizes)
    order = rank_runs(tidy.runs)
    rows = sorted(by_setting(tidy), key=lambda row: (order.index(row[1]), *sizes.loc[row[0], varied]))
    return run_table(tidy, COLUMNS, rows=rows, caption=f"{title}. {NOTE}", labels=labels, varied=varied)


def varied_in(sizes: pd.DataFrame) -> list[str]:
    """Return the sizes in which settings differ; none where they do not tell every two of them apart.

    Args:
        sizes: one row per setting, columns `SIZES`.
    """
    varied = [name for name in SIZES if sizes[name].nunique() > 1]
    return varied if varied and not sizes.duplicated(varied).any() else []
