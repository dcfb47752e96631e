"""Settings side by side (architectures, data sets, controls): what every run did in each, and what fired when."""

from __future__ import annotations

from collections.abc import Mapping

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.tables.formats import Table
from fa_audit.results.tables.rows import (
    ACCURACY,
    FIRST_FLAGS_NOTE,
    FIRST_REFERENCE,
    FIRST_SCALE,
    FOUR_CHECK,
    GRADIENT,
    GROWTH,
    OWN_FROZEN,
    THREE_CHECK,
    by_setting,
    run_table,
)
from fa_audit.results.tidy import Tidy

COLUMNS = (ACCURACY, OWN_FROZEN, GROWTH, GRADIENT, FIRST_SCALE, FIRST_REFERENCE, THREE_CHECK, FOUR_CHECK)
NOTE = (
    "Accuracy: mean ± sample standard deviation over seeds; own frozen baseline of the same setting: mean over seeds; "
    f"growth: largest over seeds; ||g_L||: median over seeds; {FIRST_FLAGS_NOTE}"
)


def build(
    tidy: Tidy, *, labels: Mapping[str, str], title: str, thresholds: DiagnosticThresholds | None = None
) -> Table:
    """Return settings in the order in which they are listed, in each the best mean accuracy first."""
    return run_table(tidy, COLUMNS, rows=by_setting(tidy), caption=f"{title}. {NOTE}", labels=labels)
