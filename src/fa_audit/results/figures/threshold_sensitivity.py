"""How verdicts depend on thresholds: the share of networks on which a check fires."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fa_audit.protocol.checks import CHECKS, Check
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.protocol.judge import FOUR
from fa_audit.results.figures import style
from fa_audit.results.outcomes import reasons
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy

_ANYWAY, _ALONE = "0.82", "0.4"  # greys, because colours stand for methods
_LIMIT = {"color": style.GREY, "linestyle": "--", "linewidth": 0.9}


@style.styled
def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """How much every verdict depends on a threshold. A row is a run, with the number of its trained
    networks over all seeds and settings. The height of the area at a threshold is the fraction of
    evaluated networks on which the check would fire; a full row means all. Dark: no other check
    fires, so that the threshold decides the verdict. Light: another check fires anyway. The dashed
    line is the protocol's threshold; a circle on it marks a run with a borderline network. Margins
    are in percentage points.
    """
    runs = tidy.runs
    order, counts = rank_runs(runs), runs["run"].value_counts()
    names = [style.wrap(f"{labels.get(run, run)} ({counts[run]})") for run in order]
    rows = math.ceil(len(FOUR.checks) / 2)
    figure = style.new_figure(title, height=rows * (style.rows_height(names) + 0.7))
    axes = figure.subplots(rows, 2, sharey=True).flat
    for unused in axes[len(FOUR.checks) :]:
        unused.remove()
    fired = reasons(runs).fillna(False)
    for ax, name in zip(axes, FOUR.checks):
        kind = CHECKS[name]
        limit = kind.scale * thresholds.limits[kind.limit]
        values = kind.scale * runs[kind.column]
        # Infinite values fire a check with an upper limit; for a lower limit they count as missing.
        values = values.where(np.isfinite(values) | (kind.side == "above"))
        at = _sweep(kind, values, limit)
        elsewhere = fired.drop(columns=kind.label).any(axis=1)
        for row, run in enumerate(order):
            own = runs["run"] == run
            evaluated = own & values.notna()
            _curve(ax, row, run, kind, at, values[evaluated], elsewhere[evaluated])
            if runs.loc[own, f"{name}_borderline"].eq(True).any():
                ax.plot(limit, row, **style.BORDERLINE, label=f"{run}: borderline")
        if kind.unit == "factor":
            style.log_scale(ax, "x")
        ax.axvline(limit, **_LIMIT, label="limit")
        ax.set_title(f"{kind.label} {kind.short}: {kind.side} {style.number(limit)}")
        ax.set_xlabel(f"threshold on {kind.axis}", fontsize=style.SMALL)
    style.name_rows(axes[0], names)
    entries = {
        "fires alone (full height: all networks)": style.AREA | {"color": _ALONE},
        "fires together with another check": style.AREA | {"color": _ANYWAY},
        "the protocol's threshold": _LIMIT,
        "run has a borderline network": style.BORDERLINE,
    }
    style.legend_below(figure, entries)
    return figure


def _sweep(kind: Check, values: pd.Series, limit: float) -> np.ndarray:
    """Return rising thresholds: the limit, every value on the axis (an outcome changes there), and
    one threshold beyond each end.
    """
    inner = np.unique([*values[np.isfinite(values)], limit])
    if kind.unit == "factor":
        inner = inner[inner > 0]
        return np.array([inner[0] / 2, *inner, 2 * inner[-1]])
    beyond = 0.08 * (inner[-1] - inner[0]) or 0.1
    return np.array([inner[0] - beyond, *inner, inner[-1] + beyond])


def _curve(
    ax: Axes,
    row: int,
    run: str,
    kind: Check,
    at: np.ndarray,
    values: pd.Series,
    elsewhere: pd.Series,
) -> None:
    """Draw one run's row: the fraction of networks on which the check fires, and in a darker grey
    the fraction on which it alone fires.

    Args:
        at: the thresholds, shape (T,).
        values: the check's value for each network, shape (n,).
        elsewhere: whether another check fires on each network, at the protocol's thresholds.
    """
    if values.empty:
        ax.text(0.5, row, "n/a", transform=ax.get_yaxis_transform(), fontsize=style.SMALL)
        return
    fires = kind.fires(values.to_numpy(), at[:, None])  # (T, n)
    alone = fires & ~elsewhere.to_numpy(bool)
    # A value equal to the threshold does not fire, so at a jump the curve has the lower fraction.
    step = "post" if kind.side == "above" else "pre"
    bottom = row + 0.4
    for networks, colour in ((fires, _ANYWAY), (alone, _ALONE)):
        height = bottom - 0.8 * networks.mean(axis=1)
        ax.fill_between(at, bottom, height, step=step, color=colour, linewidth=0)
    outline = bottom - 0.8 * fires.mean(axis=1)
    ax.plot(at, outline, drawstyle=f"steps-{step}", color=_ANYWAY, linewidth=0.5, label=run)
