"""How states, reference gradients and accuracy move over training."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fa_audit.figures import style
from fa_audit.statistics import rank_runs
from fa_audit.thresholds import Thresholds
from fa_audit.tidy import Tidy

PANEL_HEIGHT, LEGEND_ROW = 2.5, 0.16  # inches
MARKERS_PER_LINE = 5
PANELS = {
    "hidden_norm": ("(a) Last state", "median $\\|h_L\\|$"),
    "grad_norm": ("(b) Reference gradient", "median $\\|g_L\\|$"),
    "test_accuracy": ("(c) Accuracy", "test accuracy"),
}


def draw(
    tidy: Tidy,
    *,
    title: str,
    labels: Mapping[str, str],
    thresholds: Thresholds | None = None,
) -> Figure:
    """Norms at the last state and test accuracy of every epoch, a line per run and seed.

    Args:
        tidy: one setting.
        labels: how to print a run; its name where it is not listed.
        thresholds: limits of the checks; default the paper's.
    """
    limits, trajectories = thresholds or Thresholds(), tidy.trajectories
    order = rank_runs(tidy.runs)
    last = trajectories[trajectories["layer"] == trajectories.groupby("run")["layer"].transform("max")]
    names = {run: labels.get(run, run) for run in order}
    columns = max(1, min(4, len(order), 120 // (max(map(len, names.values())) + 8)))
    rows = -(-len(order) // columns) + 1  # one to spare for what is off the scale
    with style.context():
        figure = style.new_figure(title, height=PANEL_HEIGHT + rows * LEGEND_ROW)
        axes = dict(zip(PANELS, figure.subplots(1, len(PANELS), sharex=True)))
        style.log_scale(axes["hidden_norm"])
        style.log_scale(axes["grad_norm"])
        for column, ax in axes.items():
            _panel(ax, last, column, order)
        style.limit_line(axes["grad_norm"], limits.reference, fires="below")
        style.percent_scale(axes["test_accuracy"])
        figure.legend(
            handles=[*_legend(names), *style.off_scale_handles(figure)], loc="outside lower center", ncols=columns
        )
        return style.settle(figure)


def _panel(ax: Axes, last: pd.DataFrame, column: str, order: list[str]) -> None:
    """One thin line per run and seed."""
    styles = style.run_styles(order)
    for rank, run in reversed(list(enumerate(order))):  # the best run on top
        for _, line in last[last["run"] == run].sort_values("epoch").groupby("seed"):
            epochs, values = line["epoch"].to_numpy(), line[column].to_numpy(float)
            _line(ax, epochs, style.on_scale(ax, values), styles[run], label=run, phase=rank / len(order))
            leaves = _leaves_scale(style.on_scale(ax, values), values)
            style.mark_off_scale(ax, epochs[leaves], values[leaves], colour=styles[run].colour)
    title, ylabel = PANELS[column]
    ax.set_title(title)
    ax.set(xlabel="epoch", ylabel=ylabel)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))


def _leaves_scale(shown: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Where a stretch of values that the axis cannot show begins; missing values do not count."""
    hidden = np.isnan(shown) & ~np.isnan(values)
    return hidden & ~np.concatenate([[False], hidden[:-1]])


def _line(ax: Axes, epochs: np.ndarray, values: np.ndarray, look: style.RunStyle, *, label: str, phase: float) -> None:
    """One seed; `phase` (0..1) shifts the markers so that those of equal runs do not cover each other."""
    step = max(1, len(epochs) // MARKERS_PER_LINE)
    ax.plot(
        epochs,
        values,
        color=look.colour,
        linestyle=look.line,
        linewidth=0.7,
        marker=look.marker,
        markersize=2.5,
        markevery=(int(phase * step), step),
        label=label,
    )


def _legend(names: Mapping[str, str]) -> list[Line2D]:
    styles = style.run_styles(names)
    return [
        Line2D([], [], color=look.colour, linestyle=look.line, marker=look.marker, linewidth=0.9, label=names[run])
        for run, look in ((run, styles[run]) for run in names)
    ]
