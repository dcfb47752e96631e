"""The scorecard at one glance: the distance of every number from the published one."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fa_audit.results.figures import style
from fa_audit.results.judging import AGREES, DIFFERS
from fa_audit.results.scorecard import counted, sum_of
from fa_audit.results.scorecard_texts import short_sum

EDGE = 3  # end of the axis; numbers at distances up to 1 agree
_MARKS = {
    AGREES: style.MARK | {"color": style.LOOKS["ep"][0]},
    DIFFERS: style.MARK | {"color": style.LOOKS["credit_bridge"][0], "marker": "X"},
}


@style.styled
def draw(rows: pd.DataFrame, *, title: str) -> Figure:
    """Published numbers against ours, of the same network, data, training and seeds. A row is a
    setting; its name says how many of the compared numbers agree, and how many have no run. A mark
    is a number, placed at its distance from the published one, in units of the largest distance
    that agrees; so marks from -1 to 1 agree. Numbers beyond the axis are drawn at its edge.
    Bounds, verdicts and orders have no distance; they are only counted.
    """
    count = counted(rows)
    settings = list(count.groupby("setting", sort=False))
    names = []
    for setting, group in settings:
        found = sum_of(group)
        names.append(f"{setting}: {found.agree} of {found.run}, {found.not_run} not run")
    figure = style.new_figure(f"{title}: {short_sum(rows)}", height=0.17 * len(names) + 0.7)
    ax = figure.subplots()
    for row, (_, group) in enumerate(settings):
        distances = group["distance"].astype(float).clip(-EDGE, EDGE)
        # Spread a setting's numbers over the height of its row, so that they do not overlap.
        heights = row + np.linspace(-0.3, 0.3, len(group))
        for verdict, look in _MARKS.items():
            chosen = (group["verdict"] == verdict).to_numpy()
            ax.plot(distances[chosen], heights[chosen], **look, markeredgewidth=0, label=verdict)
    ax.axvspan(-1, 1, color=style.SHADE, zorder=0)
    ax.axvline(0, **style.NOUGHT)
    ax.grid(axis="y", color="0.9", linewidth=0.3)
    ax.set_xlim(-1.05 * EDGE, 1.05 * EDGE)
    ax.set_xlabel("distance from the published number\n1: the largest that agrees")
    style.name_rows(ax, names)
    within = {"within the rule": style.AREA | {"color": style.SHADE}}
    style.legend_below(figure, _MARKS | within)
    return figure
