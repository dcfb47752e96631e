"""The leaderboard on a page: accuracy against that of the same network with frozen blocks, by network and budget."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import lines, style, text_grid
from fa_audit.results.standings import NETWORK, as_published, checks_of, of_run, standing, with_margins
from fa_audit.results.statistics import summarise
from fa_audit.results.tidy import Tidy

COLUMNS = 3
SIZES = {  # columns -> a panel's height in inches, characters of its title
    1: (3.2, 60),
    2: (2.4, 30),
    COLUMNS: (1.75, 24),
}
PAGE = 8.5  # inches: the height of all panels and of the legend, at most
MANY = 24  # runs, of which the legend has the methods only
SAME = {"color": style.GREY, "linewidth": 0.7, "label": "no better than its own frozen blocks"}
ASKED = {"color": style.GREY, "linewidth": 0.7, "linestyle": (0, (4, 2))}
INTERVAL = {"linewidth": 0.8, "alpha": 0.6}


@style.styled
def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw a panel per network and budget and a point per run: mean accuracy over mean accuracy with frozen blocks.

    Colour and marker are the method's, halves its variants. Runs without a frozen baseline are left out.
    """
    ranked = with_margins(tidy)
    rows = [of_run(ranked, setting, run) for setting, run in standing(ranked)]
    runs = pd.concat(rows).dropna(subset="margin")
    runs = runs.assign(called=runs["method"].where(as_published(runs), runs["run"]))  # a variant by its own name
    panels = list(runs.groupby(list(NETWORK), dropna=False, sort=False)) if len(runs) else [((), runs)]
    columns = min(len(panels), COLUMNS)
    (height, room), count = SIZES[columns], math.ceil(len(panels) / columns)
    asked = f"{100 * thresholds.limits['depth_margin']:g} points above them: (d) fires below"
    handles = [
        *_runs(runs, labels),
        Line2D([], [], **SAME),
        Line2D([], [], **ASKED, label=asked),
        Line2D([], [], color=style.GREY, **INTERVAL, label="95 % interval of the difference"),
        Line2D([], [], **style.BORDERLINE, label="(d) borderline over the seeds"),
    ]
    legend = lines.legend_height(handles)
    figure = style.new_figure(title, height=min(height * count, PAGE - legend) + legend)
    axes = figure.subplots(count, columns, squeeze=False).ravel()
    for ax, (key, group) in zip(axes, panels):
        ax.set_title(text_grid.wrap(_title(key, group, labels), room), fontsize=style.SMALL)
        _panel(ax, group, thresholds.limits["depth_margin"], style.run_styles(runs["called"]))
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    for ax in axes[::columns]:
        ax.set_ylabel("accuracy")
    for ax in axes[max(len(panels) - columns, 0) : len(panels)]:
        ax.set_xlabel("own frozen accuracy")
    lines.legend_below(figure, handles)
    return figure


def _runs(runs: pd.DataFrame, labels: Mapping[str, str]) -> list[Line2D]:
    """Return an entry for everything that is drawn, or for every method and for all variants where there are many."""
    called = sorted(runs["called"].unique())
    if len(called) <= MANY:
        return lines.run_handles(called, style.names(called, labels))
    methods = list(dict.fromkeys(name.partition("+")[0] for name in called))
    variant = {"color": style.GREY, "marker": "o", "linestyle": "none", "fillstyle": "left"}
    half = Line2D([], [], **variant, markerfacecoloralt="white", label="half: a variant (penalty, epoch, ...)")
    return [*lines.run_handles(methods, style.names(methods, labels)), half]


def _title(key: tuple[object, ...], group: pd.DataFrame, labels: Mapping[str, str]) -> str:
    """Return the label of the only setting of a panel, or its network and budget."""
    settings = group["setting"].unique()
    if len(settings) <= 1 or not pd.Series(key).notna().all():
        return ", ".join(labels.get(name, name) for name in settings)
    dataset, architecture, width, depth, epochs = key
    return f"{architecture} d={width:g} L={depth:g}, {dataset}, {epochs:g} epochs"


def _panel(ax: Axes, group: pd.DataFrame, margin: float, looks: Mapping[str, style.RunStyle]) -> None:
    for (_, _, run), seeds in group.groupby(["setting", "run", "called"], sort=False):
        x, y = seeds["own_frozen_acc"].mean(), seeds["accuracy"].mean()
        if ends := _interval(seeds):
            ax.plot([x, x], [x + end for end in ends], color=looks[run].colour, **INTERVAL)
        ax.plot([x], [y], **looks[run].mark, linestyle="none", markersize=5.5, label=run)
        if checks_of(seeds)["d"].borderline:
            ax.plot([x], [y], **style.BORDERLINE)
    frozen, accuracy = (group[name].to_numpy(float) for name in ("own_frozen_acc", "accuracy"))
    across = _around(frozen)
    ax.plot(across, across, **SAME)
    ax.plot(across, [end + margin for end in across], **ASKED)
    ax.set(xlim=across, ylim=_around(np.concatenate([accuracy, frozen])))
    for axis in ("x", "y"):
        ax.locator_params(axis, nbins=4)
        style.percent_scale(ax, axis)


def _around(values: np.ndarray) -> tuple[float, float]:
    """Return the ends of an axis with room around the values; 0 and 1 where there is none."""
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    room = 0.08 * (high - low) or 0.05
    return low - room, high + room


def _interval(group: pd.DataFrame) -> tuple[float, ...] | None:
    """Return the interval of the margin over the seeds, of one seed over its test samples."""
    if len(group) == 1:
        ends = group[["depth_interval_low", "depth_interval_high"]].iloc[0].astype(float)
        return tuple(ends) if ends.notna().all() else None
    return summarise(group["margin"]).interval
