"""The audit at one glance: what every check decides on, and accuracy beside its frozen baselines,
for each run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fa_audit.protocol.checks import CHECKS, lettered
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.protocol.over_seeds import verdict_over_seeds
from fa_audit.results.figures import lines, style, text_grid
from fa_audit.results.outcomes import near_limit
from fa_audit.results.statistics import by_run, rank_runs
from fa_audit.results.tidy import Tidy

SURROUNDINGS = 1.55  # inches: title, names of panels, axis labels and legend
LEAST = 1.5  # inches: all rows
LABEL_WIDTH, AXIS_WIDTH = 22, 20  # characters of a row's label in one line, and of an axis's
SPREAD, BAR = 0.26, 0.34  # of a row: distance between seeds, half height of the mean
MARK = {"color": style.GREY, "linestyle": "none", "markeredgewidth": 0.8}
OWN = MARK | {
    "marker": "o",
    "markerfacecolor": "white",
    "markersize": 3.5,
    "label": "own frozen baseline",
}
BP = {
    "color": style.GREY,
    "linestyle": (0, (1, 1)),
    "linewidth": 1,
    "label": "bp+frozen baseline, mean",
}
ASKED = MARK | {"marker": "|", "markersize": 5, "markeredgewidth": 1}


@style.styled
def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw growth, reference gradient, stability and accuracy of every run of a setting, best mean
    accuracy first.

    A row is a run, named with its four-check verdict over the seeds; these stand below each other
    around its tick.
    """
    groups = by_run(tidy.runs, rank_runs(tidy.runs), "seed")
    names = [_name(labels.get(run, run), group) for run, group in groups.items()]
    figure = style.new_figure(
        title, height=max(LEAST, text_grid.heights(names, lines=2)) + SURROUNDINGS
    )
    axes = figure.subplots(1, len(lettered()), sharey=True)
    for ax, check in zip(axes, lettered().values()):
        kind = CHECKS[check]
        if kind.unit == "factor":
            style.log_scale(ax, "x")
        _panel(ax, groups, check)
        if kind.unit == "points":  # the accuracy, beside the baseline that its margin is over
            _baselines(ax, groups, thresholds.limits[kind.limit])
            style.percent_scale(ax, "x")
        else:
            style.limit_line(ax, thresholds.limits[kind.limit], kind.limit, axis="x")
    text_grid.name_rows(axes[0], names)
    handles = [
        Line2D([], [], **MARK, marker="o", markersize=3.5, label="one seed, 95 % interval"),
        Line2D([], [], **MARK, marker="|", markersize=8, label="mean over seeds"),
        Line2D([], [], **style.BORDERLINE, label="borderline: limit in its interval, (?)"),
        Line2D([], [], **OWN),
        Line2D([], [], **BP),
        Line2D(
            [],
            [],
            **ASKED,
            label=f"asked: own frozen + {100 * thresholds.limits['depth_margin']:g} points",
        ),
        Patch(color=style.SHADE, linewidth=0, label="check fires"),
        *style.off_scale_handles(figure),
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=3, columnspacing=1.2, handletextpad=0.4
    )
    return figure


def _name(label: str, group: pd.DataFrame) -> str:
    """Return how a row is called: the run; its four-check verdict, with the checks that it names or
    depends on.
    """
    found = verdict_over_seeds(group.to_dict("records"))
    verdict = found.verdict.removeprefix("needs ").removesuffix(" not evaluated)").rstrip(")")
    kind, _, letters = verdict.partition(" (")
    named = dict.fromkeys([*filter(None, letters.split(", ")), *found.borderline])
    listed = ", ".join(f"{letter}?" if letter in found.borderline else letter for letter in named)
    second = f"{kind} ({listed})" if listed else kind
    return f"{text_grid.wrap(label, LABEL_WIDTH)}\n{text_grid.wrap(second, LABEL_WIDTH)}"


def _panel(ax: Axes, groups: Mapping[str, pd.DataFrame], check: str) -> None:
    """Draw one point per run and seed with its 95 % interval, one bar per run for the mean of the
    measured seeds.

    A ring is around the point of a seed whose interval contains the limit. The interval of a margin
    is drawn around the accuracy, so that it reaches the mark of what is asked where that is
    borderline.
    """
    kind, styles = CHECKS[check], style.run_styles(groups)
    margin = kind.unit == "points"
    for row, (run, group) in enumerate(groups.items()):
        look, values = styles[run], group["accuracy" if margin else kind.column].to_numpy(float)
        y = _places(row, len(values))
        shown = style.on_scale(ax, values, "x")
        ax.plot(shown, y, **lines.SEED | look.mark, label=run)
        style.mark_off_scale(ax, y, values, colour=look.colour, axis="x")
        around = group["own_frozen_acc"].to_numpy(float) if margin else 0.0
        ends = (
            around + group[f"{check}_interval_{end}"].to_numpy(float) for end in ("low", "high")
        )
        low, high = (style.on_scale(ax, end, "x") for end in ends)
        if (known := np.isfinite(low) & np.isfinite(high)).any():
            ax.hlines(
                y[known],
                low[known],
                high[known],
                color=look.colour,
                linewidth=0.6,
                alpha=0.7,
                label="interval",
            )
        inside = near_limit(group, check)
        ax.plot(shown[inside], y[inside], label="borderline", **style.BORDERLINE)
        mean = lines.mean(values)
        if not np.isnan(mean) and len(values) > 1:
            ax.vlines(mean, row - BAR, row + BAR, color=look.colour, linewidth=1, label="mean")
    ax.set_title(f"({kind.letter}) {'Accuracy' if margin else kind.short}", pad=12)
    ax.set_xlabel(
        "test accuracy" if margin else text_grid.wrap(kind.axis, AXIS_WIDTH), fontsize=style.SMALL
    )
    ax.tick_params(axis="y", length=0)
    for row in range(0, len(groups), 2):
        ax.axhspan(row - 0.5, row + 0.5, color="0.97", linewidth=0, zorder=-1)


def _places(row: int, seeds: int) -> np.ndarray:
    """Return where the seeds of a run stand: around its tick, within its row."""
    return row + min(SPREAD, 2 * BAR / seeds) * (np.arange(seeds) - (seeds - 1) / 2)


def _baselines(ax: Axes, groups: Mapping[str, pd.DataFrame], margin: float) -> None:
    """Draw beside every seed its own frozen baseline and the accuracy below which the depth check
    fires.

    That of bp+frozen, which all runs of a setting share, is one line.
    """
    for row, group in enumerate(groups.values()):
        y, frozen = _places(row, len(group)), group["own_frozen_acc"].to_numpy(float)
        ax.plot(frozen, y, **OWN)
        ax.plot(frozen + margin, y, label="asked", **ASKED)
    shared = pd.concat(list(groups.values())).drop_duplicates(["seed", "bp_frozen_acc"])[
        "bp_frozen_acc"
    ]
    if not np.isnan(bp := lines.mean(shared.to_numpy(float))):
        ax.axvline(bp, zorder=0, **BP)
