"""What figures of many runs share: curves over epochs, seeds around the line of their mean, the legend below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fa_audit.results.figures import style
from fa_audit.results.statistics import summarise

MARKERS_PER_CURVE = 5
LEGEND_ROW, LEGEND_WIDTH, HANDLE = 0.16, 120, 8  # inches; characters of a row and of a handle
SEED = {"color": style.GREY, "linestyle": "none", "marker": "o", "markersize": 3.5, "markeredgewidth": 0.6}
NOUGHT = {"color": "0.7", "linewidth": 0.6, "zorder": 0}  # the line at 0
MEAN = {"marker": "_", "markersize": 7, "linewidth": 0.9}  # the dash shows a mean that has no neighbours


def curve(ax: Axes, epochs: np.ndarray, values: np.ndarray, look: style.RunStyle, *, label: str, phase: float) -> None:
    """Draw one seed over training, with an arrow where a stretch begins that the axis cannot show.

    Args:
        phase: 0..1, shifts the markers so that those of equal runs do not cover each other.
    """
    shown = style.on_scale(ax, values)
    step = max(1, len(epochs) // MARKERS_PER_CURVE)
    ax.plot(
        epochs,
        shown,
        color=look.colour,
        linestyle=look.line,
        linewidth=0.7,
        marker=look.marker,
        markersize=2.5,
        markevery=(int(phase * step), step),
        label=label,
    )
    hidden = off_scale(ax, values)
    leaves = hidden & ~np.concatenate([[False], hidden[:-1]])
    style.mark_off_scale(ax, epochs[leaves], values[leaves], colour=look.colour)


def whole_numbers(ax: Axes, most: int) -> None:
    """Label at most `most` places of the x axis, at whole numbers; one epoch or one layer gets its label, too."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=most, min_n_ticks=1))


def off_scale(ax: Axes, values: np.ndarray) -> np.ndarray:
    """Return which values the axis cannot show; missing ones are not among them."""
    return np.isnan(style.on_scale(ax, values)) & ~np.isnan(values)


def last_states(trajectories: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of every run's last state ``h_L``; networks may differ in depth."""
    return trajectories[trajectories["layer"] == trajectories.groupby("run")["layer"].transform("max")]


def points(
    ax: Axes, x: np.ndarray, values: np.ndarray, look: style.RunStyle, *, label: str, hollow: np.ndarray | None = None
) -> None:
    """Draw the run's marker for every seed, an arrow where the axis cannot show its value; NaN is absent.

    Args:
        hollow: which markers are not filled; none by default.
    """
    hollow = np.zeros(len(values), bool) if hollow is None else hollow
    for chosen, face in ((~hollow, look.colour), (hollow, "white")):
        if chosen.any():
            shown = style.on_scale(ax, values[chosen])
            ax.plot(x[chosen], shown, **SEED | {"color": look.colour, "marker": look.marker, "label": label},
                    markerfacecolor=face)  # fmt: skip
    style.mark_off_scale(ax, x, values, colour=look.colour)


def seeds_and_mean(
    ax: Axes,
    x: np.ndarray,
    values: np.ndarray,
    look: style.RunStyle,
    *,
    label: str,
    shift: float,
    hollow: np.ndarray | None = None,
) -> None:
    """Draw seeds of one run as `points` over a line through the means of values at equal `x`, moved by `shift`.

    The line is interrupted where a value is infinite or none was measured.
    """
    places = np.unique(x)
    means = np.array([mean(values[x == place]) for place in places])
    shown = style.on_scale(ax, means)
    ax.plot(places + shift, shown, color=look.colour, linestyle=look.line, label="mean over seeds", **MEAN)
    points(ax, x + shift, values, look, label=label, hollow=hollow)


def mean(values: np.ndarray) -> float:
    """Return the mean of the measured values; NaN where there is none or one is infinite."""
    measured = values[~np.isnan(values)]
    return summarise(measured).mean if measured.size and np.isfinite(measured).all() else np.nan


def dodge(names: Sequence[str], width: float) -> dict[str, float]:
    """Return how far each name is moved sideways so that values at one place stand side by side, within `width`."""
    if len(names) == 1:
        return {names[0]: 0.0}
    return dict(zip(names, np.linspace(-width / 2, width / 2, len(names)).tolist()))


def with_counts(label: str, values: pd.DataFrame, places: pd.Series) -> str:
    """Return a label with the number of seeds behind every mean, or the smallest and the largest number.

    Args:
        values: the quantities that are drawn, one row per seed and place.
        places: where on the x axis each row stands.
    """
    counts = values.groupby(places).count().to_numpy().ravel()
    numbers = sorted(set(counts[counts > 0].tolist())) or [0]
    return f"{label} (n = {numbers[0]})" if len(numbers) == 1 else f"{label} (n = {numbers[0]} to {numbers[-1]})"


def run_handles(names: Mapping[str, str]) -> list[Line2D]:
    """Return a legend entry for every run: names as keys, labels as values."""
    looks = style.run_styles(names)
    return [
        Line2D([], [], color=look.colour, linestyle=look.line, marker=look.marker, linewidth=0.9, label=names[run])
        for run, look in ((run, looks[run]) for run in names)
    ]


def mark_handles() -> list[Line2D]:
    """Return legend entries for the seeds and their mean."""
    return [Line2D([], [], **SEED, label="one seed"), Line2D([], [], color=style.GREY, **MEAN, label="mean over seeds")]


def legend_height(handles: Sequence[Artist]) -> float:
    """Return inches that `legend_below` needs, with a row to spare for the arrows of values off the scale."""
    return LEGEND_ROW * (-(-len(handles) // _columns(handles)) + 1)


def legend_below(figure: Figure, handles: Sequence[Artist]) -> None:
    """Draw one legend under all panels; entries for arrows are added where there are some."""
    entries = [*handles, *style.off_scale_handles(figure)]
    figure.legend(handles=entries, loc="outside lower center", ncols=_columns(handles))


def _columns(handles: Sequence[Artist]) -> int:
    widest = max(len(str(handle.get_label())) for handle in handles)
    return max(1, min(4, len(handles), LEGEND_WIDTH // (widest + HANDLE)))
