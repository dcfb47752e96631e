"""What depth does to every method: accuracy, growth of states, reference gradient, and what trained blocks gain."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from fa_audit.core.checks import CHECKS
from fa_audit.core.errors import AuditError
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import lines, style
from fa_audit.results.statistics import by_run, rank_runs, with_margin
from fa_audit.results.tidy import Tidy

HEIGHT = 4.4  # inches without the legend
PANELS = {
    "accuracy": ("(a) Accuracy", "test accuracy"),
    "max_growth": ("(b) Growth of states", "largest growth of\nmedian $\\|h_l\\|$ in one block"),
    "grad_norm_last": ("(c) Reference gradient", "median $\\|g_L\\|$"),
    "margin": ("(d) Depth utility", "accuracy above own\nfrozen baseline (points)"),
}


@style.styled
def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw four quantities against the number of blocks; a marker per run and seed, a line through a run's means.

    Raises:
        AuditError: two settings have the same depth.
    """
    for depth, settings in tidy.runs.groupby("depth")["setting"].unique().items():
        if len(settings) > 1:
            found = f"{', '.join(settings)} all have depth {depth}"
            raise AuditError(f"depth_sweep: {found}; expected settings that differ in depth.")
    runs = with_margin(tidy.runs)
    groups = by_run(runs.assign(margin=100 * runs["margin"]), rank_runs(runs), "depth", "seed")
    names = lines.counted(groups, labels, columns=PANELS, at="depth")
    handles = [*lines.run_handles(groups, names), *lines.mark_handles()]
    figure = style.new_figure(title, height=HEIGHT + lines.legend_height(handles))
    axes = dict(zip(PANELS, figure.subplots(2, 2, sharex=True).flat))
    style.log_scale(axes["max_growth"])
    style.log_scale(axes["grad_norm_last"])
    for column, ax in axes.items():
        lines.seeds_and_means(ax, groups, "depth", column)
        title, ylabel = PANELS[column]
        ax.set(title=title, ylabel=ylabel)
    for check in ("scale", "reference", "depth"):
        kind = CHECKS[check]
        style.limit_line(axes[kind.column], kind.scale * thresholds.limits[kind.limit], kind.limit)
    style.percent_scale(axes["accuracy"])
    for ax in (axes["grad_norm_last"], axes["margin"]):
        ax.set_xlabel("number of blocks $L$")
        ax.set_xticks(np.unique(tidy.runs["depth"]))
    lines.legend_below(figure, handles)
    return figure
