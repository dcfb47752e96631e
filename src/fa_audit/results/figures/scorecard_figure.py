"""The scorecard at one glance: how far every number that was run lies from the published one.

A number that was not run, or does not count, has no line: the title and the headings of the
settings count it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fa_audit.results.figures import style, text_grid
from fa_audit.results.judging import AGREES, DIFFERS, NOT_RUN
from fa_audit.results.scorecard import counted
from fa_audit.results.scorecard_texts import short_sum
from fa_audit.results.statistics import extent

DISTANCE = "distance; 1: all\nthat its rule allows"
TINY = 6  # points
HEADING = 20  # characters of a setting's name in one line
LINE_HEIGHT, SURROUNDINGS = 0.135, 1.1  # inches: one line; title, axis and legend
REACH = 3.2  # of the axis, in margins
LEAST = 4  # lines of an empty figure
BESIDE = 1.05  # where marks without a distance are, as a fraction of the axis
MARKS = {AGREES: ("o", style.FINE), DIFFERS: ("X", style.ERROR)}
BEYOND = {True: ">", False: "<"}
PER_LINE = 4  # numbers below each other before a line becomes higher
Group = tuple[str, list[pd.DataFrame]]  # a setting, and its numbers by quantity


@style.styled
def draw(rows: pd.DataFrame, *, title: str) -> Figure:
    """Draw a line per setting and quantity, a mark per published number, those of several runs
    below each other.

    Args:
        rows: as `fa_audit.results.scorecard.scorecard` makes them.
        title: comes before the summary.
    """
    count = counted(rows)
    run = count["verdict"] != NOT_RUN
    groups = {name: [line for _, line in group.groupby("quantity", sort=False)]
              for name, group in count[run].groupby("setting", sort=False)}  # fmt: skip
    columns = _columns(list(groups.items())) or [[]]
    height = max(LEAST, *map(_height, columns))
    figure = style.new_figure(
        f"{title}: {short_sum(rows)}", height=SURROUNDINGS + LINE_HEIGHT * height
    )
    axes = figure.subplots(1, len(columns), squeeze=False)[0]
    for ax, column in zip(axes, columns):
        _panel(ax, column, height, count[~run]["setting"].value_counts().to_dict())
    marks = {
        verdict: {"color": colour, "marker": marker} for verdict, (marker, colour) in MARKS.items()
    }
    marks["off the axis"] = {"color": MARKS[DIFFERS][1], "marker": BEYOND[True]}
    handles: list[Artist] = [
        Line2D([], [], linestyle="none", label=label, **look) for label, look in marks.items()
    ]
    handles.append(Patch(color=style.SHADE, label="within the rule"))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=3, columnspacing=1.2, handletextpad=0.4
    )
    return figure


def _columns(groups: list[Group]) -> list[list[Group]]:
    """Return the settings in one column or two, as even as they can be without changing their
    order.
    """
    cuts = range(1, len(groups))
    best = min(
        cuts, key=lambda cut: max(_height(groups[:cut]), _height(groups[cut:])), default=len(groups)
    )
    return [column for column in (groups[:best], groups[best:]) if column]


def _height(column: list[Group]) -> float:
    """Return the height of settings below each other, a heading before each, in lines."""
    return sum(_heading(setting) + sum(map(_line_height, lines)) for setting, lines in column)


def _heading(setting: str) -> float:
    """Return the height of a setting's name, in lines."""
    return 1 + text_grid.wrap(setting, HEADING).count("\n")


def _line_height(line: pd.DataFrame) -> float:
    return max(1, len(line) / PER_LINE)


def _panel(ax: Axes, column: list[Group], height: float, absent: Mapping[str, int]) -> None:
    """Draw the settings of one column from top to bottom; `absent` counts the numbers of each that
    were not run.
    """
    places: dict[float, str] = {}
    headings, top = [], 0.0
    for setting, lines in column:
        headings.append(len(places))
        middle = top + _heading(setting) / 2
        places[middle] = text_grid.wrap(setting, HEADING)
        if absent.get(setting):
            style.margin_note(
                ax, f"{absent[setting]} not run", (BESIDE, middle), gap=5, fontsize=TINY
            )
        top += _heading(setting)
        for line in lines:
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
    """Draw the marks of one line below each other, how many numbers agree, and with how many seeds."""
    ys = top + _line_height(line) * (np.arange(len(line)) + 1) / (len(line) + 1)
    for y, verdict, distance in zip(ys, line["verdict"], line["distance"].astype(float)):
        _mark(ax, y, verdict, distance)
    hits = line["verdict"] == AGREES
    outcome = f"{hits.sum()}/{len(line)} (n = {extent(line['n'])})"
    place, weight = (BESIDE, top + _line_height(line) / 2), "normal" if hits.all() else "bold"
    style.margin_note(ax, outcome, place, gap=5, fontsize=TINY, fontweight=weight)


def _mark(ax: Axes, y: float, verdict: str, distance: float) -> None:
    """Draw one number: at its distance, at the edge if that is off the axis, beside the axis if
    there is none.
    """
    marker, colour = MARKS[verdict]
    look = {
        "color": colour,
        "markersize": 3.5,
        "markeredgewidth": 0,
        "linestyle": "none",
        "label": verdict,
    }
    look |= {"zorder": 2 + list(MARKS).index(verdict)}  # misses on top
    if pd.isna(distance):
        ax.plot(BESIDE, y, marker, transform=ax.get_yaxis_transform(), clip_on=False, **look)
    elif abs(distance) > REACH:
        ax.plot(np.copysign(0.96 * REACH, distance), y, BEYOND[distance > 0], **look)
    else:
        ax.plot(distance, y, marker, **look)
