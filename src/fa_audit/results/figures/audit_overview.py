"""The audit at one glance: what every check decides on, and accuracy beside its frozen baselines, for each run."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy

ROW_HEIGHT, SURROUNDINGS = 1.65, 1.1  # inches: one row of panels; titles and legend
PANEL_WIDTH = 2.45 * 72  # points of the x axis in a figure of two panels a row
SPREAD, BAR = 0.14, 0.26  # of one run's slot: distance between seeds, half width of the mean
BESIDE = {"own_frozen_acc": 0.30, "bp_frozen_acc": 0.41}  # where the baselines stand in the slot
BASELINE = {
    "own_frozen_acc": {"marker": "o", "markerfacecolor": "white", "label": "own frozen baseline"},
    "bp_frozen_acc": {"marker": "x", "label": "bp+frozen baseline"},
}
ASKED = {"color": style.GREY, "linestyle": "none", "marker": "_", "markersize": 5, "markeredgewidth": 1}


def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds | None = None
) -> Figure:
    """Draw growth, reference gradient, stability and accuracy of every run of a setting, best mean accuracy first."""
    limits, runs = thresholds or DiagnosticThresholds(), tidy.runs
    order = rank_runs(runs)
    groups = {run: runs[runs["run"] == run].sort_values("seed") for run in order}
    texts, rotation, text_height = _tick_labels([labels.get(run, run) for run in order])
    with style.context():
        figure = style.new_figure(title, height=2 * ROW_HEIGHT + SURROUNDINGS + text_height / 72)
        (growth, gradient), (stability, accuracy) = figure.subplots(2, 2, sharex=True)
        style.log_scale(growth)
        style.log_scale(gradient)
        _panel(
            growth, groups, "max_growth", "(a) Growth of states", "largest growth of\nmedian $\\|h_l\\|$ in one block"
        )
        _panel(gradient, groups, "grad_norm_last", "(b) Reference gradient", "median $\\|g_L\\|$")
        _panel(stability, groups, "stability", "(c) Cross-batch stability", "mean cosine of\nbatch gradients")
        _panel(accuracy, groups, "accuracy", "(d) Accuracy and frozen baselines", "test accuracy")
        _baselines(accuracy, groups)
        _asked(accuracy, groups, limits.depth_margin)
        style.limit_line(growth, limits.growth, fires="above")
        style.limit_line(gradient, limits.reference, fires="below")
        style.limit_line(stability, limits.stability, fires="above")
        style.percent_scale(accuracy)
        growth.set_xlim(-0.6, len(order) - 0.4)
        growth.set_xticks(range(len(order)))
        for ax in (stability, accuracy):
            ax.set_xticks(range(len(order)), texts, rotation=rotation)
        handles = [*_legend(limits.depth_margin), *style.off_scale_handles(figure)]
        figure.legend(handles=handles, loc="outside lower center", ncols=4, columnspacing=1.2, handletextpad=0.4)
        return style.freeze_layout(figure)


def _tick_labels(labels: list[str]) -> tuple[list[str], int, float]:
    """Return labels, rotation in degrees, height in points: upright and broken before each + where that fits."""
    broken = [re.sub(r"\s*(?<!^)\+", "\n+", label) for label in labels]
    widest = max(_width(line) for label in broken for line in label.split("\n"))
    if widest < 0.92 * PANEL_WIDTH / len(labels):
        lines = max(label.count("\n") for label in broken) + 1
        return broken, 0, 1.2 * style.SMALL * lines
    return labels, 90, max(map(_width, labels))


def _width(text: str) -> float:
    with style.context():
        return TextPath((0, 0), text, size=style.SMALL).get_extents().width if text.strip() else 0.0


def _panel(ax: Axes, groups: Mapping[str, pd.DataFrame], column: str, title: str, ylabel: str) -> None:
    """Draw one point per run and seed, one bar per run for the mean of the measured seeds."""
    styles, size = style.run_styles(groups), 4 if len(groups) <= 6 else 3
    for position, (run, group) in enumerate(groups.items()):
        look, values = styles[run], group[column].to_numpy(float)
        x = _places(position, len(values))
        shown = style.on_scale(ax, values)
        ax.plot(x, shown, look.marker, color=look.colour, markersize=size, markeredgewidth=0, label=run)
        style.mark_off_scale(ax, x, values, colour=look.colour)
        measured = values[~np.isnan(values)]
        if measured.size and np.isfinite(measured).all():
            ax.hlines(measured.mean(), position - BAR, position + BAR, color=look.colour, linewidth=1, label="mean")
    ax.set_title(title)
    ax.set_ylabel(ylabel)
    ax.grid(axis="x", color="0.85", linewidth=0.5)


def _places(position: int, seeds: int) -> np.ndarray:
    """Return where the seeds of a run stand."""
    return position + SPREAD * (np.arange(seeds) - (seeds - 1) / 2)


def _asked(ax: Axes, groups: Mapping[str, pd.DataFrame], margin: float) -> None:
    """Draw the accuracy below which the depth check fires, of every seed that has an own frozen baseline."""
    for position, group in enumerate(groups.values()):
        ax.plot(_places(position, len(group)), group["own_frozen_acc"].to_numpy(float) + margin, label="asked", **ASKED)


def _baselines(ax: Axes, groups: Mapping[str, pd.DataFrame]) -> None:
    """Draw the frozen baselines of each seed, to the right of the run."""
    for position, group in enumerate(groups.values()):
        for column, offset in BESIDE.items():
            values = group[column].to_numpy(float)
            _mark(ax, np.full(len(values), position + offset), values, column)


def _mark(ax: Axes, x: np.ndarray, y: np.ndarray, column: str) -> None:
    ax.plot(x, y, linestyle="none", color=style.GREY, markersize=3.5, markeredgewidth=0.8, **BASELINE[column])


def _legend(margin: float) -> list[Line2D | Patch]:
    """Return what the marks mean; a run's colour and marker are explained by its place on the x axis."""
    common = {"color": style.GREY, "linestyle": "none", "markeredgewidth": 0.8}
    return [
        Line2D([], [], **common | {"marker": "o", "label": "one seed"}),
        Line2D([], [], color=style.GREY, linewidth=1, label="mean over seeds"),
        *(Line2D([], [], **common | entry) for entry in BASELINE.values()),
        Line2D([], [], **ASKED | {"label": f"own frozen + {100 * margin:g} points: fires below"}),
        Patch(color=style.SHADE, linewidth=0, label="check fires"),
    ]
