"""Parts of figures of many runs: seeds around the line of their mean, names, the legend below."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fa_audit.results.figures import style
from fa_audit.results.statistics import extent

LEGEND_ROW, LEGEND_WIDTH, HANDLE = 0.16, 96, 8  # inches; characters of a row and of a handle
SEED = {
    "color": style.GREY,
    "linestyle": "none",
    "marker": "o",
    "markersize": 3.5,
    "markeredgewidth": 0.5,
}
NOUGHT = {"color": "0.7", "linewidth": 0.6, "zorder": 0}  # the line at 0
MEAN = {
    "marker": "_",
    "markersize": 7,
    "linewidth": 0.9,
    "fillstyle": "full",
}  # the dash: a mean without neighbours
LABEL = 0.125  # inches from one direct label to the next


def xy(table: pd.DataFrame, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """Return two columns as arrays of numbers."""
    return table[x].to_numpy(float), table[y].to_numpy(float)


def whole_numbers(ax: Axes, most: int) -> None:
    """Label at most `most` places of the x axis, at whole numbers; one epoch or one layer gets its
    label, too.
    """
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=most, min_n_ticks=1))


def points(
    ax: Axes,
    x: np.ndarray,
    values: np.ndarray,
    look: style.RunStyle,
    *,
    label: str,
    hollow: np.ndarray | None = None,
) -> None:
    """Draw the run's marker for every seed, an arrow where the axis cannot show its value; NaN is
    absent.

    Args:
        hollow: which markers are not filled; none by default.
    """
    hollow = np.zeros(len(values), bool) if hollow is None else hollow
    for chosen, own in ((~hollow, {}), (hollow, {"markerfacecolor": "white", "fillstyle": "full"})):
        if chosen.any():
            ax.plot(
                x[chosen], style.on_scale(ax, values[chosen]), **SEED | look.mark | own, label=label
            )
    style.mark_off_scale(ax, x, values, colour=look.colour)


def seeds_and_means(
    ax: Axes, groups: Mapping[str, pd.DataFrame], x: str, y: str, *, hollow: str = ""
) -> None:
    """Draw one column against another for every run: its seeds as `points` over a line through
    their means.

    Everything stands at its place on the axis, the best run on top. A line is interrupted where a
    value is infinite or none was measured.

    Args:
        hollow: a boolean column: which markers are not filled.
    """
    looks = style.run_styles(groups)
    for run in reversed(groups):
        group, look = groups[run], looks[run]
        at, values = xy(group, x, y)
        places = np.unique(at)
        means = style.on_scale(ax, np.array([mean(values[at == place]) for place in places]))
        ax.plot(places, means, **look.options | MEAN, label="mean over seeds")
        open_marks = group[hollow].to_numpy() if hollow else None
        points(ax, at, values, look, label=run, hollow=open_marks)


def mean(values: np.ndarray) -> float:
    """Return the mean of the measured values; NaN where there is none or one is infinite."""
    found = float(pd.Series(values).mean())
    return found if np.isfinite(found) else np.nan


def direct_labels(
    ax: Axes,
    ends: Mapping[str, float],
    looks: Mapping[str, style.RunStyle],
    names: Mapping[str, str],
    *,
    height: float,
) -> None:
    """Name curves to the right of a panel of linear y axis, at the height of their ends, clear of
    each other.

    Args:
        ends: the last value of every run.
        height: of the panel, in inches.
    """
    low, high = ax.get_ylim()
    step = LABEL / height
    ordered = sorted(ends, key=lambda run: ends[run])
    wanted = np.array([(ends[run] - low) / (high - low) for run in ordered])
    rank = step * np.arange(len(ordered))
    free = np.maximum.accumulate(wanted - rank)  # pushed up where they are too close
    for run, y in zip(ordered, np.minimum(free + rank, 1 - step * len(ordered) + rank + step)):
        look = {"color": looks[run].colour, "fontsize": style.SMALL, "xycoords": "axes fraction"}
        style.margin_note(ax, names[run], (1, y), gap=5, **look)


def run_handles(runs: Collection[str], labels: Mapping[str, str]) -> list[Line2D]:
    """Return a legend entry for every run, in their order."""
    looks, look = style.run_styles(runs), {"linewidth": 0.9, "markersize": 4.5}
    return [Line2D([], [], **looks[run].options | look, label=labels.get(run, run)) for run in runs]


def counted(
    groups: Mapping[str, pd.DataFrame],
    labels: Mapping[str, str],
    *,
    columns: Sequence[str],
    at: str | list[str],
) -> dict[str, str]:
    """Return names of runs with the number of seeds behind each mean of `columns` at each value of
    `at`.
    """
    counts = {
        run: group.groupby(at)[list(columns)].count().to_numpy() for run, group in groups.items()
    }
    return {
        run: f"{labels.get(run, run)} (n = {extent(found[found > 0]) or 0})"
        for run, found in counts.items()
    }


def mark_handles() -> list[Line2D]:
    """Return legend entries for the seeds and their mean."""
    return [
        Line2D([], [], **SEED, label="one seed"),
        Line2D([], [], color=style.GREY, **MEAN, label="mean over seeds"),
    ]


def legend_height(handles: Sequence[Artist]) -> float:
    """Return inches that `legend_below` needs, with a row to spare for the arrows of values off the
    scale.
    """
    return LEGEND_ROW * (-(-len(handles) // _columns(handles)) + 1)


def legend_below(figure: Figure, handles: Sequence[Artist]) -> None:
    """Draw one legend under all panels; entries for arrows are added where there are some."""
    entries = [*handles, *style.off_scale_handles(figure)]
    figure.legend(handles=entries, loc="outside lower center", ncols=_columns(handles))


def _columns(handles: Sequence[Artist]) -> int:
    widest = max(len(str(handle.get_label())) for handle in handles)
    return max(1, min(4, len(handles), LEGEND_WIDTH // (widest + HANDLE)))
