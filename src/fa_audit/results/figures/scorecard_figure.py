"""The scorecard at one glance: how far every number that was run lies from the published one.

What was not run, or does not count, has no line: the title and the headings of the settings count it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fa_audit.results.figures import style, text_grid
from fa_audit.results.judging import NOT_REPRODUCED, NOT_RUN, REPRODUCED
from fa_audit.results.scorecard import counted
from fa_audit.results.scorecard_texts import short_sum

DISTANCE = "distance; 1: all\nthat its rule allows"
TINY = 6  # points
HEADING = 20  # characters of a setting's name in one line
LINE_HEIGHT, SURROUNDINGS = 0.135, 1.1  # inches: one line; title, axis and legend
REACH = 3.2  # of the axis, in margins
LEAST = 4  # lines of an empty figure
BESIDE = 1.05  # where marks without a distance stand, as a fraction of the axis
MARKS = {REPRODUCED: ("o", style.FINE), NOT_REPRODUCED: ("X", style.ERROR)}
BEYOND = {True: ">", False: "<"}
LINE = ["setting", "quantity"]  # what the numbers of a line share
PER_LINE = 4  # numbers below each other before a line becomes higher


def draw(rows: pd.DataFrame, *, title: str) -> Figure:
    """Draw a line per setting and quantity, a mark per published number, those of several runs below each other.

    Args:
        rows: as `fa_audit.results.scorecard.scorecard` makes them.
        title: stands before the summary.
    """
    count = counted(rows)
    shown = count[count["verdict"] != NOT_RUN]
    groups = [
        [line for _, line in group.groupby(LINE, sort=False)] for _, group in shown.groupby("setting", sort=False)
    ]
    columns = _columns(groups) if groups else [[]]
    height = max(LEAST, *map(_height, columns))
    absent = count[count["verdict"] == NOT_RUN]["setting"].value_counts().to_dict()
    with style.context():
        figure = style.new_figure(f"{title}: {short_sum(rows)}", height=SURROUNDINGS + LINE_HEIGHT * height)
        axes = figure.subplots(1, len(columns), squeeze=False)[0]
        for ax, column in zip(axes, columns):
            _panel(ax, column, height, absent)
        figure.legend(handles=_legend(), loc="outside lower center", ncols=3, columnspacing=1.2, handletextpad=0.4)
        return style.freeze_layout(figure)


def _columns(groups: list[list[pd.DataFrame]]) -> list[list[list[pd.DataFrame]]]:
    """Return the settings in one column or two, as even as they can be without changing their order."""
    cuts = range(1, len(groups))
    best = min(cuts, key=lambda cut: max(_height(groups[:cut]), _height(groups[cut:])), default=len(groups))
    return [column for column in (groups[:best], groups[best:]) if column]


def _height(column: list[list[pd.DataFrame]]) -> float:
    """Return the height of settings below each other, a heading before each, in lines."""
    return sum(_heading(group) + sum(_line_height(line) for line in group) for group in column)


def _heading(group: list[pd.DataFrame]) -> float:
    """Return the height of a setting's name, in lines."""
    return 1 + text_grid.wrap(group[0]["setting"].iloc[0], HEADING).count("\n")


def _line_height(line: pd.DataFrame) -> float:
    return max(1, len(line) / PER_LINE)


def _panel(ax: Axes, column: list[list[pd.DataFrame]], height: float, absent: Mapping[str, int]) -> None:
    """Draw the settings of one column from top to bottom; `absent` counts what was not run of each."""
    places: dict[float, str] = {}
    headings, top = [], 0.0
    for group in column:
        headings.append(len(places))
        setting = group[0]["setting"].iloc[0]
        places[top + _heading(group) / 2] = text_grid.wrap(setting, HEADING)
        if absent.get(setting):
            style.margin_note(
                ax, f"{absent[setting]} not run", (BESIDE, top + _heading(group) / 2), gap=5, fontsize=TINY
            )
        top += _heading(group)
        for line in group:
            places[top + _line_height(line) / 2] = line["quantity"].iloc[0].replace("_", " ")
            _line(ax, top, line)
            top += _line_height(line)
    ax.axvspan(-1, 1, color=style.SHADE, linewidth=0, zorder=0)
    ax.axvline(0, color=style.GREY, linewidth=0.6, zorder=0.5)
    ax.set(xlim=(-REACH, REACH), ylim=(height, 0), xticks=(-3, -1, 1, 3))
    ax.set_xlabel(DISTANCE, fontsize=style.SMALL)
    ax.set_yticks(list(places), list(places.values()), fontsize=TINY)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", color="0.9", linewidth=0.3)
    for position in headings:
        ax.get_yticklabels()[position].set_fontweight("bold")


def _line(ax: Axes, top: float, line: pd.DataFrame) -> None:
    """Draw the marks of one line below each other, and its outcome in words."""
    ys = top + _line_height(line) * (np.arange(len(line)) + 1) / (len(line) + 1)
    for y, verdict, distance in zip(ys, line["verdict"], line["distance"].astype(float)):
        _mark(ax, y, verdict, distance)
    weight = "normal" if (line["verdict"] == REPRODUCED).all() else "bold"
    place = (BESIDE, top + _line_height(line) / 2)
    style.margin_note(ax, _outcome(line), place, gap=5, fontsize=TINY, fontweight=weight)


def _mark(ax: Axes, y: float, verdict: str, distance: float) -> None:
    """Draw one number: at its distance, at the edge if that is off the axis, beside the axis if there is none."""
    marker, colour = MARKS[verdict]
    look = {"color": colour, "markersize": 3.5, "markeredgewidth": 0, "linestyle": "none", "label": verdict}
    look |= {"zorder": 2 + list(MARKS).index(verdict)}  # misses on top
    if pd.isna(distance):
        ax.plot(BESIDE, y, marker, transform=ax.get_yaxis_transform(), clip_on=False, **look)
    elif abs(distance) > REACH:
        ax.plot(np.copysign(0.96 * REACH, distance), y, BEYOND[distance > 0], **look)
    else:
        ax.plot(distance, y, marker, **look)


def _outcome(line: pd.DataFrame) -> str:
    """Return how many numbers of a line were reproduced, and with how many seeds."""
    hits = int((line["verdict"] == REPRODUCED).sum())
    return f"{hits}/{len(line)} (n = {' to '.join(dict.fromkeys(str(n) for n in (line['n'].min(), line['n'].max())))})"


def _legend() -> list[Line2D | Patch]:
    marks = [
        Line2D([], [], color=colour, linestyle="none", marker=marker, label=verdict)
        for verdict, (marker, colour) in MARKS.items()
    ]
    beyond = Line2D([], [], color=MARKS[NOT_REPRODUCED][1], linestyle="none", marker=BEYOND[True], label="off the axis")
    return [*marks, beyond, Patch(color=style.SHADE, label="within the rule")]
