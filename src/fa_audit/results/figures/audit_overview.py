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
from fa_audit.results.figures import lines, style
from fa_audit.results.outcomes import is_borderline
from fa_audit.results.statistics import by_run, rank_runs
from fa_audit.results.tidy import Tidy

ROW_HEIGHT, SURROUNDINGS = 1.65, 1.1  # inches: one row of panels; titles and legend
PANEL_WIDTH = 2.45 * 72  # points of the x axis in a figure of two panels a row
SPREAD, BAR = 0.14, 0.26  # of one run's slot: distance between seeds, half width of the mean
CHECK_OF = {"max_growth": "scale", "grad_norm_last": "reference", "stability": "stability", "accuracy": "depth"}
PANELS = {
    "max_growth": ("(a) Growth of states", "largest growth of\nmedian $\\|h_l\\|$ in one block"),
    "grad_norm_last": ("(b) Reference gradient", "median $\\|g_L\\|$"),
    "stability": ("(c) Cross-batch stability", "mean cosine of\nbatch gradients"),
    "accuracy": ("(d) Accuracy and frozen baselines", "test accuracy"),
}
BESIDE = {"own_frozen_acc": 0.30, "bp_frozen_acc": 0.41}  # where the baselines stand in the slot
MARK = {"color": style.GREY, "linestyle": "none", "markeredgewidth": 0.8}
BASELINE = {
    "own_frozen_acc": MARK | {"marker": "o", "markerfacecolor": "white", "label": "own frozen baseline"},
    "bp_frozen_acc": MARK | {"marker": "x", "label": "bp+frozen baseline"},
}
ASKED = MARK | {"marker": "_", "markersize": 5, "markeredgewidth": 1}


def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw growth, reference gradient, stability and accuracy of every run of a setting, best mean accuracy first."""
    groups = by_run(tidy.runs, rank_runs(tidy.runs), "seed")
    texts, rotation, text_height = _tick_labels([labels.get(run, run) for run in groups])
    with style.context():
        figure = style.new_figure(title, height=2 * ROW_HEIGHT + SURROUNDINGS + text_height / 72)
        growth, gradient, stability, accuracy = axes = figure.subplots(2, 2, sharex=True).ravel()
        style.log_scale(growth)
        style.log_scale(gradient)
        for ax, column in zip(axes, PANELS):
            _panel(ax, groups, column)
        _baselines(accuracy, groups, thresholds.limits["depth_margin"])
        style.limit_line(growth, thresholds.limits["growth"], "growth")
        style.limit_line(gradient, thresholds.limits["reference"], "reference")
        style.limit_line(stability, thresholds.limits["stability"], "stability")
        style.percent_scale(accuracy)
        growth.set_xlim(-0.6, len(groups) - 0.4)
        growth.set_xticks(range(len(groups)))
        for ax in (stability, accuracy):
            ax.set_xticks(range(len(groups)), texts, rotation=rotation)
        handles = [*_legend(thresholds.limits["depth_margin"]), *style.off_scale_handles(figure)]
        figure.legend(handles=handles, loc="outside lower center", ncols=4, columnspacing=1.2, handletextpad=0.4)
        return style.freeze_layout(figure)


def _tick_labels(labels: list[str]) -> tuple[list[str], int, float]:
    """Return labels, rotation in degrees, height in points: upright and broken before each + where that fits."""
    broken = [re.sub(r"\s*(?<!^)\+", "\n+", label) for label in labels]
    widest = max(_width(line) for label in broken for line in label.split("\n"))
    if widest < 0.92 * PANEL_WIDTH / len(labels):
        return broken, 0, 1.2 * style.SMALL * (max(label.count("\n") for label in broken) + 1)
    return labels, 90, max(map(_width, labels))


def _width(text: str) -> float:
    with style.context():
        return TextPath((0, 0), text, size=style.SMALL).get_extents().width if text.strip() else 0.0


def _panel(ax: Axes, groups: Mapping[str, pd.DataFrame], column: str) -> None:
    """Draw one point per run and seed with its 95 % interval, one bar per run for the mean of the measured seeds.

    A ring is around the point of a seed whose interval contains the limit. The interval of a margin is drawn around the
    accuracy, so that it reaches the mark of what is asked where that is borderline.
    """
    styles, size = style.run_styles(groups), 4 if len(groups) <= 6 else 3
    for position, (run, group) in enumerate(groups.items()):
        look, values = styles[run], group[column].to_numpy(float)
        x = _places(position, len(values))
        shown = style.on_scale(ax, values)
        ax.plot(x, shown, look.marker, color=look.colour, markersize=size, markeredgewidth=0, label=run)
        style.mark_off_scale(ax, x, values, colour=look.colour)
        _uncertainty(ax, x, shown, group, column, look.colour)
        mean = lines.mean(values)
        if not np.isnan(mean):
            ax.hlines(mean, position - BAR, position + BAR, color=look.colour, linewidth=1, label="mean")
    title, ylabel = PANELS[column]
    ax.set(title=title, ylabel=ylabel)
    ax.grid(axis="x", color="0.85", linewidth=0.5)


def _uncertainty(ax: Axes, x: np.ndarray, shown: np.ndarray, group: pd.DataFrame, column: str, colour: str) -> None:
    check = CHECK_OF[column]
    above = group["own_frozen_acc"].to_numpy(float) if check == "depth" else 0.0
    ends = (above + group[f"{check}_interval_{end}"].to_numpy(float) for end in ("low", "high"))
    low, high = (style.on_scale(ax, end) for end in ends)
    if (known := np.isfinite(low) & np.isfinite(high)).any():
        ax.vlines(x[known], low[known], high[known], color=colour, linewidth=0.6, alpha=0.7, label="interval")
    if (inside := is_borderline(group, check)).any():
        ax.plot(x[inside], shown[inside], label="borderline", **style.BORDERLINE)


def _places(position: int, seeds: int) -> np.ndarray:
    """Return where the seeds of a run stand."""
    return position + SPREAD * (np.arange(seeds) - (seeds - 1) / 2)


def _baselines(ax: Axes, groups: Mapping[str, pd.DataFrame], margin: float) -> None:
    """Draw every seed's frozen baselines to the right of the run, and the accuracy below which the depth check fires.

    That is drawn of every seed that has an own frozen baseline.
    """
    for position, group in enumerate(groups.values()):
        for column, offset in BESIDE.items():
            x = np.full(len(group), position + offset)
            ax.plot(x, group[column].to_numpy(float), markersize=3.5, **BASELINE[column])
    for position, group in enumerate(groups.values()):
        asked = group["own_frozen_acc"].to_numpy(float) + margin
        ax.plot(_places(position, len(group)), asked, label="asked", **ASKED)


def _legend(margin: float) -> list[Line2D | Patch]:
    """Return what the marks mean; a run's colour and marker are explained by its place on the x axis."""
    return [
        Line2D([], [], **MARK, marker="o", label="one seed"),
        Line2D([], [], color=style.GREY, linewidth=1, label="mean over seeds"),
        Line2D([], [], **style.BORDERLINE, label="borderline: its 95 % interval contains the limit"),
        *(Line2D([], [], **entry) for entry in BASELINE.values()),
        Line2D([], [], **ASKED, label=f"own frozen + {100 * margin:g} points: fires below"),
        Patch(color=style.SHADE, linewidth=0, label="check fires"),
    ]
