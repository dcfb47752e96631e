"""The audit at one glance: the number behind every check, for each run of a setting."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fa_audit.protocol.checks import CHECKS, Check, four_checks
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.figures.squares import outcome_of
from fa_audit.results.outcomes import near_limit
from fa_audit.results.statistics import by_run, rank_runs
from fa_audit.results.tidy import Tidy

NAME = 22  # characters in a line of a row's label
SPREAD = 0.26  # of a row: between two seeds, which all stand within 0.7 of it
RING = style.RING | {"color": "black", "label": "borderline: limit in its interval, (?)"}
FROZEN = style.MARK | {"markerfacecolor": "white", "label": "own frozen baseline"}
BP = {"color": style.GREY, "linestyle": style.DOTTED, "linewidth": 1, "label": "bp+frozen, mean"}
ASKED = style.MARK | {"marker": "|", "markersize": 5}


@style.styled
def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """The number behind each check, for every run, best mean accuracy first. A point is one seed
    with its 95 % interval, a bar the mean over seeds; a ring marks a seed whose interval contains
    the limit. A check fires in the shaded part of its panel. Under a run's name are the checks that
    fire over the seeds; a question mark means borderline. D1: largest growth of the median state
    norm in one block.
    D2: median norm of the batch-mean loss's gradient at the last state. C: mean pairwise cosine of
        the
    batches' mean gradients at the middle state. D3: accuracy on the whole test set, with the same
    seed's own frozen baseline (circle) and the accuracy that D3 asks for (tick); the dotted line is
    the mean accuracy of frozen blocks under backpropagation.
    """
    groups = by_run(tidy.runs, rank_runs(tidy.runs), "seed")
    names = [_name(labels.get(run, run), seeds) for run, seeds in groups.items()]
    figure = style.new_figure(title, height=max(1.5, style.rows_height(names)) + 0.8)
    axes = figure.subplots(1, len(four_checks()), sharey=True)
    margin = thresholds.limits["depth_margin"]
    for ax, check in zip(axes, four_checks().values()):
        kind = CHECKS[check]
        if kind.unit == "factor":
            style.log_scale(ax, "x")
        _panel(ax, groups, check, kind)
        if kind.unit == "points":
            _baselines(ax, groups, margin)
        else:
            style.limit_line(ax, thresholds.limits[kind.limit], kind.limit, axis="x")
    style.name_rows(axes[0], names)
    handles = [
        Line2D([], [], **style.MARK, label="one seed, 95 % interval"),
        Line2D([], [], **style.MARK | {"marker": "|", "markersize": 8}, label="mean over seeds"),
        Line2D([], [], **RING),
        Line2D([], [], **FROZEN),
        Line2D([], [], **BP),
        Line2D([], [], **ASKED, label=f"asked: own frozen + {100 * margin:g} points"),
        Patch(color=style.SHADE, label="check fires"),
    ]
    style.legend_below(figure, handles)
    return figure


def _name(label: str, seeds: pd.DataFrame) -> str:
    found = outcome_of(seeds)
    verdict = f"{found.name} ({found.checks})" if found.checks else found.name
    return f"{style.wrap(label, NAME)}\n{style.wrap(verdict, NAME)}"


def _panel(ax: Axes, groups: Mapping[str, pd.DataFrame], check: str, kind: Check) -> None:
    """Draw a point per run and seed with its interval, a bar per run for their mean.

    The interval of a margin is drawn around the accuracy, so that it reaches the mark of what is
    asked where that is borderline.
    """
    margin = kind.unit == "points"
    looks = style.run_styles(groups)
    for row, (run, seeds) in enumerate(groups.items()):
        values = seeds["accuracy" if margin else kind.column].to_numpy(float)
        y, colour = _places(row, len(values)), looks[run].colour
        style.points(ax, values, y, looks[run], label=run, axis="x")
        around = seeds["own_frozen_acc"].to_numpy(float) if margin else 0.0
        low, high = (
            style.on_scale(ax, around + seeds[f"{check}_interval_{end}"].to_numpy(float), "x")
            for end in ("low", "high")
        )
        ax.hlines(y, low, high, color=colour, linewidth=0.6, alpha=0.7, label="interval")
        inside = near_limit(seeds, check)
        ax.plot(style.on_scale(ax, values, "x")[inside], y[inside], **RING)
        if len(values) > 1:
            mean = style.mean(values)
            ax.vlines(mean, row - 0.34, row + 0.34, color=colour, linewidth=1, label="mean")
        if row % 2 == 0:
            ax.axhspan(row - 0.5, row + 0.5, color="0.97", linewidth=0, zorder=-1)
    name, axis = ("Accuracy", "test accuracy") if margin else (kind.short, kind.axis)
    ax.set_title(f"{kind.label}: {name}", pad=12)
    ax.set_xlabel(style.wrap(axis, 20), fontsize=style.SMALL)


def _places(row: int, seeds: int) -> np.ndarray:
    """Return the positions of a run's seeds, spread around its tick."""
    return row + min(SPREAD, 0.7 / seeds) * (np.arange(seeds) - (seeds - 1) / 2)


def _baselines(ax: Axes, groups: Mapping[str, pd.DataFrame], margin: float) -> None:
    """Draw beside every seed its own frozen baseline, and the accuracy that the depth check asks
    for.
    """
    for row, seeds in enumerate(groups.values()):
        y, frozen = _places(row, len(seeds)), seeds["own_frozen_acc"].to_numpy(float)
        ax.plot(frozen, y, **FROZEN)
        ax.plot(frozen + margin, y, **ASKED, label="asked")
    # All runs of a setting share the networks of bp+frozen.
    shared = pd.concat(groups.values()).drop_duplicates(["seed", "bp_frozen_acc"])["bp_frozen_acc"]
    bp = style.mean(shared.to_numpy(float))
    if not np.isnan(bp):
        ax.axvline(bp, zorder=0, **BP)
    style.percent_scale(ax, "x")
