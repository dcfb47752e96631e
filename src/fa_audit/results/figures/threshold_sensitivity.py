"""How much each verdict depends on a threshold: the fractions of runs that a check would fault, and
would alone.

Alone: no other check, with its threshold at its limit, walks the run back anyway.
`fa_audit.results.calibration` defines the trusted and the failing networks, and the gap between
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fa_audit.protocol.checks import CHECKS, Check, lettered, of_limit
from fa_audit.protocol.limits import DiagnosticThresholds, fires
from fa_audit.results.calibration import Calibration, calibrate, deciding_values
from fa_audit.results.figures import style, text_grid
from fa_audit.results.outcomes import near_limit, reasons
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy

ROW, PANEL, SURROUNDINGS = (
    0.22,
    0.85,
    0.75,
)  # inches: one run; what a panel needs beside; title and legend
FULL = 0.8  # height of a row's curve where all of its runs fire, in rows
BEYOND = 0.08  # of the axis: how far the sweep goes on behind the last value
ANYWAY, ALONE = "0.82", "0.4"  # greys: colours are those of methods
LIMIT = {"color": style.GREY, "linestyle": (0, (5, 2)), "linewidth": 0.9}
GAP = {"color": style.FINE, "linewidth": 3, "solid_capstyle": "butt"}


@style.styled
def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw for each check and run the fractions of its seeds in all settings that fire, and alone."""
    runs = tidy.runs
    order, values, why = rank_runs(runs), deciding_values(runs), reasons(runs).fillna(False)
    counts = runs["run"].value_counts()
    rows = [
        text_grid.wrap(f"{labels.get(run, run)} ({counts[run]})", text_grid.LABEL_WIDTH)
        for run in order
    ]
    row_height = max(ROW, text_grid.LINE * (1 + max(label.count("\n") for label in rows)))
    half = math.ceil(len(lettered()) / 2)
    figure = style.new_figure(title, height=half * (row_height * len(rows) + PANEL) + SURROUNDINGS)
    axes = figure.subplots(half, 2, sharey=True).flat
    for ax, name in zip(axes, lettered().values()):
        kind = CHECKS[name]
        check = kind.limit
        limit = thresholds.limits[check]
        at = sweep(check, values[check], limit)
        elsewhere = why.drop(columns=kind.letter).any(axis=1)
        for row, run in enumerate(order):
            part = runs["run"] == run
            _curves(
                ax,
                row,
                run,
                swept(check, values.loc[part, check], elsewhere[part], at),
                check=check,
                at=at,
            )
            if near_limit(runs[part], name).any():
                ax.plot(limit, row, label=f"{run}: borderline", **style.BORDERLINE)
        _frame(ax, kind, limit, calibrate(check, runs, values[check]))
    axes[0].set(yticks=range(len(rows)), yticklabels=rows, ylim=(len(rows) - 0.4, -0.6))
    handles = [
        Patch(color=ALONE, linewidth=0, label="fires alone (full height: all)"),
        Patch(color=ANYWAY, linewidth=0, label="fires beside another check"),
        Line2D([], [], **LIMIT, label="the protocol's threshold"),
        Line2D([], [], **GAP, label="separate failing from trusted (BP, EP)"),
        Line2D([], [], **style.BORDERLINE, label="borderline network there"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def sweep(check: str, values: pd.Series, limit: float) -> np.ndarray:
    """Return rising thresholds: all at which the check changes its outcome for a value, the limit,
    both ends.
    """
    inner = np.unique([*values[np.isfinite(values)], limit])
    if of_limit(check).unit == "factor":
        inner = inner[inner > 0]
        factor = (inner[-1] / inner[0]) ** BEYOND if len(inner) > 1 else 10.0
        return np.array([inner[0] / factor, *inner, inner[-1] * factor])
    beyond = BEYOND * (inner[-1] - inner[0]) or 0.1
    return np.array([inner[0] - beyond, *inner, inner[-1] + beyond])


def swept(
    check: str, values: pd.Series, elsewhere: pd.Series, thresholds: np.ndarray
) -> dict[str, np.ndarray]:
    """Return two fractions of one run's networks, of those for which a check was evaluated, at
    every threshold of it.

    ``fires``: on how many it fires; ``alone``: and nothing else walks them back. Neither if it was
        evaluated for none.

    Args:
        values: of each network the number that the check decides on; NaN where it was not
            evaluated.
        elsewhere: whether anything but this check walks the network back, at the protocol's
            thresholds.
        thresholds: shape (T,).
    """
    known = values.notna().to_numpy()
    if not known.any():
        return {}
    own = fires(check, values.to_numpy(), thresholds[:, None])[:, known]
    return {
        "fires": own.mean(axis=1),
        "alone": (own & ~elsewhere.to_numpy(bool)[known]).mean(axis=1),
    }


def _curves(
    ax: Axes, row: int, run: str, found: Mapping[str, np.ndarray], *, check: str, at: np.ndarray
) -> None:
    """Draw one run's row: an area as high as the fraction that fires, the darker part as the one
    that does alone.
    """
    # A value is not beyond a threshold that equals it: a step belongs to the side where the check
    # fires no more.
    step = "post" if of_limit(check).side == "above" else "pre"
    bottom = row + FULL / 2
    for (name, fraction), colour in zip(found.items(), (ANYWAY, ALONE)):
        label = run if name == "fires" else f"{run}: {name}"
        ax.fill_between(at, bottom, bottom - FULL * fraction, step=step, color=colour, linewidth=0)
        ax.plot(
            at,
            bottom - FULL * fraction,
            drawstyle=f"steps-{step}",
            color=colour,
            linewidth=0.5,
            label=label,
        )
    if not found:
        ax.text(
            0.5,
            row,
            "n/a",
            transform=ax.get_yaxis_transform(),
            ha="center",
            va="center",
            fontsize=style.SMALL,
        )


def _frame(ax: Axes, kind: Check, limit: float, calibration: Calibration) -> None:
    """Set scale and titles of one panel; draw the protocol's threshold and the calibration gap."""
    if kind.unit == "factor":
        style.log_scale(ax, "x")
    if kind.unit == "points":
        ax.xaxis.set_major_formatter(lambda fraction, _: style.number(100 * fraction))
    unit = " points" if kind.unit == "points" else ""
    ax.set_title(
        f"({kind.letter}) {kind.short}: {kind.side} {style.number(kind.scale * limit)}{unit}", pad=8
    )
    ax.set_xlabel(f"threshold on {kind.axis}\n{_finding(kind, calibration)}", fontsize=style.SMALL)
    ax.axvline(limit, **LIMIT, label="limit")
    low, high = ax.get_xlim()
    if gap := calibration.gap(kind.limit):
        ax.plot(
            np.clip(gap, low, high),
            [1, 1],
            transform=ax.get_xaxis_transform(),
            clip_on=False,
            label="gap",
            **GAP,
        )
    ax.set_xlim(low, high)
    ax.tick_params(axis="y", length=0)


def _finding(kind: Check, calibration: Calibration) -> str:
    """Return in words which thresholds separate trusted from failing networks."""
    edges = {"trusted": calibration.trusted, "failing": calibration.failing}
    if absent := [group for group, edge in edges.items() if edge is None]:
        return f"no {', no '.join(absent)} networks"
    gap = calibration.gap(kind.limit)
    return (
        "separate: {} to {}".format(*(style.number(kind.scale * edge) for edge in gap))
        if gap
        else "none separates"
    )
