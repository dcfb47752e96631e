"""How much each verdict depends on a threshold: the share of networks that fire as it is swept."""

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
from fa_audit.results.outcomes import near_limit, reasons
from fa_audit.results.statistics import rank_runs, with_margin
from fa_audit.results.tidy import Tidy

FULL = 0.8  # height of a row's curve where all of its networks fire, in rows
BEYOND = 0.08  # of the axis: how far the sweep goes on behind the last value
ANYWAY, ALONE = "0.82", "0.4"  # greys: colours are those of methods
LIMIT = {"color": style.GREY, "linestyle": style.DASHED, "linewidth": 0.9}
RING = style.RING | {"color": "black"}


@style.styled
def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """How much every verdict depends on a threshold. A row is a run, with the number of its trained
    networks over all seeds and settings. The height of the area is the fraction of networks on
    which the
    check would fire at each threshold, of those for which it was evaluated; a full row means all.
    Dark: no other check fires, so that the threshold decides the verdict. Light: another check
    fires anyway. The dashed line is the protocol's threshold; a circle on it marks a run with a
    borderline network. Margins are in percentage points.
    """
    runs = with_margin(tidy.runs)
    order, counts = rank_runs(runs), runs["run"].value_counts()
    names = [style.wrap(f"{labels.get(run, run)} ({counts[run]})") for run in order]
    columns = 2
    rows = -(-len(four_checks()) // columns)
    figure = style.new_figure(title, height=rows * (style.rows_height(names) + 0.7))
    axes = figure.subplots(rows, columns, sharey=True).flat
    fired = reasons(runs).fillna(False)
    for ax, name in zip(axes, four_checks().values()):
        kind = CHECKS[name]
        limit = kind.scale * thresholds.limits[kind.limit]
        values = kind.scale * runs[kind.column].astype(float)
        values = values.where(np.isfinite(values) | (kind.side == "above"))
        at = sweep(kind, values, limit)
        elsewhere = fired.drop(columns=kind.label).any(axis=1)
        for row, run in enumerate(order):
            part = runs["run"] == run
            _curves(ax, row, run, kind, at, values[part], elsewhere[part])
            if near_limit(runs[part], name).any():
                ax.plot(limit, row, **RING, label=f"{run}: borderline")
        if kind.unit == "factor":
            style.log_scale(ax, "x")
        ax.axvline(limit, **LIMIT, label="limit")
        ax.set_title(f"{kind.label} {kind.short}: {kind.side} {style.number(limit)}")
        ax.set_xlabel(f"threshold on {kind.axis}", fontsize=style.SMALL)
    style.name_rows(axes[0], names)
    handles = [
        Patch(color=ALONE, label="fires alone (full height: all)"),
        Patch(color=ANYWAY, label="fires beside another check"),
        Line2D([], [], **LIMIT, label="the protocol's threshold"),
        Line2D([], [], **RING, label="borderline network there"),
    ]
    style.legend_below(figure, handles)
    return figure


def sweep(kind: Check, values: pd.Series, limit: float) -> np.ndarray:
    """Return rising thresholds: all values, at which the outcome changes, the limit, and both ends."""
    inner = np.unique([*values[np.isfinite(values)], limit])
    if kind.unit != "factor":
        beyond = BEYOND * (inner[-1] - inner[0]) or 0.1
        return np.array([inner[0] - beyond, *inner, inner[-1] + beyond])
    inner = inner[inner > 0]
    factor = (inner[-1] / inner[0]) ** BEYOND if len(inner) > 1 else 10.0
    return np.array([inner[0] / factor, *inner, inner[-1] * factor])


def swept(kind: Check, values: pd.Series, elsewhere: pd.Series, at: np.ndarray) -> np.ndarray:
    """Return two fractions of networks at every threshold: the check fires, and it fires alone.

    Args:
        values: the number behind the check for every network; NaN if it was not evaluated.
        elsewhere: whether another check fires at the protocol's thresholds.
        at: the thresholds, shape (T,).

    Returns:
        Shape (2, T); NaN if the check was evaluated for no network.
    """
    known = values.notna().to_numpy()
    if not known.any():
        return np.full((2, len(at)), np.nan)
    own = kind.fires(values.to_numpy(), at[:, None])[:, known]
    alone = own & ~elsewhere.to_numpy(bool)[known]
    return np.array([own.mean(axis=1), alone.mean(axis=1)])


def _curves(
    ax: Axes,
    row: int,
    run: str,
    kind: Check,
    at: np.ndarray,
    values: pd.Series,
    elsewhere: pd.Series,
) -> None:
    """Draw one run's row: the fraction that fires as an area, and darker the fraction that fires
    alone.
    """
    # A value is not beyond a threshold that equals it: a step belongs to the side where the check
    # fires no more.
    step = "post" if kind.side == "above" else "pre"
    bottom = row + FULL / 2
    fractions = swept(kind, values, elsewhere, at)
    if np.isnan(fractions).any():
        ax.text(0.5, row, "n/a", transform=ax.get_yaxis_transform(), fontsize=style.SMALL)
        return
    for fraction, colour in zip(fractions, (ANYWAY, ALONE)):
        height = bottom - FULL * fraction
        ax.fill_between(at, bottom, height, step=step, color=colour, linewidth=0)
    outline = bottom - FULL * fractions[0]
    ax.plot(at, outline, drawstyle=f"steps-{step}", color=ANYWAY, linewidth=0.5, label=run)
