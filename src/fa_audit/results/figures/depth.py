"""Figures of depth: what each trained block adds, and what the number of blocks does to every
method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from string import ascii_lowercase

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fa_audit.core.errors import AuditError
from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures import lines, style, text_grid
from fa_audit.results.statistics import by_run, rank_runs, with_margin
from fa_audit.results.tidy import Tidy

MOST_DIRECT, LONGEST_DIRECT = (
    6,
    20,
)  # methods, and characters of a name, that are written beside their lines
PANEL, BETWEEN, TITLE = (
    1.9,
    0.6,
    0.3,
)  # inches: height of a panel; its heading and axis labels; the title
PER_ROW = 2  # panels
HEADING = 34  # characters of a panel's title in one line


@style.styled
def depth_ladder(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw test accuracy against the number of trained blocks: a point per seed, a line per method
    through the means.

    A panel per network; a few methods are named at the ends of their lines, more in a legend.

    Raises:
        AuditError: a setting has no run of a ladder.
    """
    steps = {setting: rungs(tidy.of(setting).runs) for setting in tidy.settings}
    every = pd.concat([table.assign(setting=setting) for setting, table in steps.items()])
    looks = style.run_styles(every["run"])
    groups = by_run(every, rank_runs(every), "k")
    columns = min(PER_ROW, len(steps))
    rows = -(-len(steps) // columns)
    handles = lines.run_handles(
        groups, lines.counted(groups, labels, columns=["accuracy"], at=["setting", "k"])
    )
    direct = (
        len(groups) <= MOST_DIRECT
        and max(len(str(handle.get_label())) for handle in handles) <= LONGEST_DIRECT
    )
    height = rows * (PANEL + BETWEEN) + TITLE + (0 if direct else lines.legend_height(handles))
    figure = style.new_figure(title, height=height)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for ax, table in zip(axes, steps.values()):
        _ladders(ax, table, looks)
    for ax, table in zip(
        axes, steps.values() if direct else ()
    ):  # when all panels have the limits of all
        here = by_run(table, rank_runs(table), "k")
        ends = {run: group.groupby("k")["accuracy"].mean().iloc[-1] for run, group in here.items()}
        names = lines.counted(here, labels, columns=["accuracy"], at="k")
        lines.direct_labels(ax, ends, looks, names, height=PANEL)
    for letter, ax, setting in zip(ascii_lowercase, axes, steps if len(steps) > 1 else ()):
        ax.set_title(text_grid.wrap(f"({letter}) {labels.get(setting, setting)}", HEADING))
    for ax in axes[::columns]:
        ax.set_ylabel("test accuracy")
    for ax in axes[len(steps) :]:
        ax.remove()
    style.percent_scale(axes[0])
    if not direct:
        lines.legend_below(figure, handles)
    return figure


def _ladders(ax: Axes, table: pd.DataFrame, looks: Mapping[str, style.RunStyle]) -> None:
    """Draw the seeds of every run of a network on its rungs, and a line through their means."""
    for run, group in by_run(table, rank_runs(table), "k", "seed").items():
        means = group.groupby("k")["accuracy"].mean()
        means = means.reindex(
            range(means.index.max() + 1)
        )  # no line over a rung that was not measured
        ax.plot(means.index, means, **looks[run].options | lines.MEAN, label=f"{run} mean")
        ax.plot(group["k"], group["accuracy"], **lines.SEED | looks[run].mark, label=run)
    lines.whole_numbers(ax, 9)
    ax.set_xlabel("trained blocks $k$")
    ax.grid(axis="y", color="0.9", linewidth=0.5)


def rungs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return every measured rung of the ladders, as ``run, k, seed, accuracy``; the run is the
    ladder's highest.

    Rung k has the top k blocks trained: k = L is the plain run, 0 < k < L the run whose first L - k
    blocks stay at initialisation, and k = 0 the plain run's own frozen baseline. Runs with a
    penalty, with random targets or without blocks stand on no rung.

    Raises:
        AuditError: no run stands on a rung.
    """
    excluded = (
        (runs["penalty"] > 0) | runs["random_targets"].astype(bool) | runs["shallow"].astype(bool)
    )
    ladders = runs["run"].map(lambda run: str(replace(parse_run(run), frozen=0)))
    trained = runs[~excluded].assign(run=ladders, k=runs["depth"] - runs["frozen_blocks"])
    plain = trained[trained["frozen_blocks"] == 0]
    frozen = plain.assign(k=0, accuracy=plain["own_frozen_acc"])
    found = pd.concat([trained[trained["k"] > 0], frozen])[
        ["run", "k", "seed", "accuracy"]
    ].dropna()
    if found.empty:
        names = ", ".join(sorted(set(runs["run"])))
        raise AuditError(
            f"depth_ladder: found {names}; expected runs of a ladder, such as dfa and dfa+frozen1."
        )
    return found.sort_values(["run", "k", "seed"], ignore_index=True)


SWEEP_HEIGHT = 4.4  # inches without the legend
PANELS = {
    "accuracy": ("(a) Accuracy", "test accuracy"),
    "max_growth": ("(b) Growth of states", "largest growth of\nmedian $\\|h_l\\|$ in one block"),
    "grad_norm_last": ("(c) Reference gradient", "median $\\|g_L\\|$"),
    "margin": ("(d) Depth utility", "accuracy above own\nfrozen baseline (points)"),
}


@style.styled
def depth_sweep(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw four quantities against the number of blocks; a marker per run and seed, a line through
    a run's means.

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
    figure = style.new_figure(title, height=SWEEP_HEIGHT + lines.legend_height(handles))
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
