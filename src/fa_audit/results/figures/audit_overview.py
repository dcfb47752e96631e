"""The audit at one glance: the number behind every check, for each run of a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.protocol.judge import FOUR
from fa_audit.results.figures import style
from fa_audit.results.figures.squares import outcome_of
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy

_NAME = 22  # characters in a line of a row's label
_FROZEN = style.MARK | {"markerfacecolor": "white"}
_BP = {"color": style.GREY, "linestyle": ":", "linewidth": 1}
_ASKED = style.MARK | {"marker": "|", "markersize": 5}


@style.styled
def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """The number behind each check, for every run, best mean accuracy first. A point is one seed
    with its 95 % interval, a bar the mean over seeds; a ring marks a seed whose interval contains
    the limit. D1, D2 and C fire in the shaded parts of their panels. Under a run's name are its
    verdict and the checks that fire or are borderline (?) over the seeds. D1: largest growth of the
    median state norm in one block. D2: median norm of the batch-mean loss's gradient at the last
    state. C: mean pairwise cosine of the batches' mean gradients at the middle state. D3: accuracy
    on the whole test set, with the same seed's own frozen baseline (circle) and the accuracy that
    D3 asks for (tick); the dotted line is the mean accuracy of backpropagation with frozen blocks.
    """
    order = rank_runs(tidy.runs)
    runs = tidy.runs.sort_values(["run", "seed"])
    # Spread a run's seeds around its tick, over at most 0.7 of the row's height.
    seeds = runs.groupby("run")["seed"].transform("size")
    place = runs.groupby("run").cumcount() - (seeds - 1) / 2
    runs["row"] = runs["run"].map(order.index) + np.minimum(0.26, 0.7 / seeds) * place
    names = [_name(labels.get(run, run), runs[runs["run"] == run]) for run in order]
    figure = style.new_figure(title, height=max(1.5, style.rows_height(names)) + 0.8)
    axes = figure.subplots(1, len(FOUR.checks), sharey=True)
    margin = thresholds.limits["depth_margin"]
    for ax, check in zip(axes, FOUR.checks):
        unit = CHECKS[check].unit
        if unit == "factor":
            style.log_scale(ax, "x")
        _panel(ax, runs, order, check)
        if unit == "points":
            _baselines(ax, runs, margin)
        else:
            style.limit_line(ax, check, thresholds, axis="x")
    style.name_rows(axes[0], names)
    entries = {
        "one seed, 95 % interval": style.MARK,
        "mean over seeds": style.MARK | {"marker": "|", "markersize": 8},
        "borderline (?): interval contains limit": style.BORDERLINE,
        "own frozen baseline": _FROZEN,
        "bp+frozen, mean": _BP,
        f"D3 asks for: own frozen + {100 * margin:g} points": _ASKED,
        "check fires": style.AREA | {"color": style.SHADE},
    }
    style.legend_below(figure, entries)
    return figure


def _name(label: str, seeds: pd.DataFrame) -> str:
    found = outcome_of(seeds)
    verdict = f"{found.name} ({found.checks})" if found.checks else found.name
    return f"{style.wrap(label, _NAME)}\n{style.wrap(verdict, _NAME)}"


def _panel(ax: Axes, runs: pd.DataFrame, order: Sequence[str], check: str) -> None:
    """Draw a point per run and seed with its interval, and a bar at each run's mean."""
    kind = CHECKS[check]
    column = kind.column
    low, high = runs[f"{check}_interval_low"], runs[f"{check}_interval_high"]
    if kind.unit == "points":
        column = "accuracy"
        # Shift the margin's interval to the accuracy. If D3 is borderline, the shifted interval
        # contains the tick, the accuracy that D3 asks for.
        frozen = runs[f"{kind.baseline}_frozen_acc"]
        low, high = low + frozen, high + frozen
    looks = style.run_styles(order)
    for row, run in enumerate(order):
        own = runs[runs["run"] == run]
        colour = looks[run]["color"]
        style.points(ax, own, column, "row", looks[run], label=run, axis="x")
        ends, rows = [low[own.index], high[own.index]], [own["row"], own["row"]]
        ax.plot(ends, rows, color=colour, linewidth=0.6, alpha=0.7, label="interval")
        if len(own) > 1:
            mean = own[column].mean()
            bar = [row - 0.34, row + 0.34]
            ax.plot([mean, mean], bar, color=colour, linewidth=1, label="mean")
        if row % 2 == 0:
            ax.axhspan(row - 0.5, row + 0.5, color="0.97", linewidth=0, zorder=-1)
    inside = runs[runs[f"{check}_borderline"].eq(True)]
    ax.plot(inside[column], inside["row"], **style.BORDERLINE, label="borderline")
    ax.set_title(f"{kind.label}: {kind.short}", pad=12)
    ax.set_xlabel(style.wrap(kind.axis, 20), fontsize=style.SMALL)


def _baselines(ax: Axes, runs: pd.DataFrame, margin: float) -> None:
    """Draw, for every run and seed, the own frozen baseline and the accuracy that D3 asks for; and
    for every run the mean of bp+frozen.
    """
    ax.plot(runs["own_frozen_acc"], runs["row"], **_FROZEN, label="own frozen")
    ax.plot(runs["own_frozen_acc"] + margin, runs["row"], **_ASKED, label="asked")
    for row, own in runs.groupby(runs["row"].round()):
        mean = own["bp_frozen_acc"].mean()
        # Where runs share the networks of bp+frozen, the pieces form one line.
        ax.plot([mean, mean], [row - 0.5, row + 0.5], zorder=0, **_BP, label="bp+frozen")
    ax.set_xlabel("test accuracy", fontsize=style.SMALL)
    style.percent_scale(ax, "x")
