"""The leaderboard as a picture: a row a rule, its accuracy beside that of its own frozen blocks, in
every network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.standings import as_published
from fa_audit.results.statistics import summarise
from fa_audit.results.tidy import Tidy

COLUMNS = 2  # networks beside each other
ROW, SURROUNDINGS = 0.185, 0.7  # inches: of a rule; title and axis of a panel
NAME, TITLE = 22, 26  # characters in one line
TEXT = 8.5  # points: the figure can be read on a telephone
TRAINED = {"color": style.FINE, "marker": "o", "linestyle": "none", "markersize": 5}
FROZEN = {
    "color": style.GREY,
    "marker": "o",
    "linestyle": "none",
    "markersize": 5,
    "markerfacecolor": "white",
}
JOINED = {"color": style.GREY, "linewidth": 1}
INTERVAL = {"color": style.FINE, "linewidth": 3, "alpha": 0.35, "solid_capstyle": "butt"}
LEGEND = {"trained": TRAINED, "own frozen blocks": FROZEN, "95 % interval over seeds": INTERVAL}


@style.styled
def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw a panel per setting, two beside each other that share their rows, and a row per rule.

    A row has the mean accuracy, and that with the rule's own frozen blocks, joined. Rows are sorted
    by accuracy in the left setting, then in the right one. A variant of a rule has a row of its
    own. Runs without an accuracy are left out.
    """
    runs = tidy.runs.dropna(subset="accuracy").sort_values(["run", "seed"])
    runs = runs.assign(rule=runs["method"].where(as_published(runs), runs["run"]))
    settings = [name for name in tidy.settings if name in set(runs["setting"])]
    columns = min(max(len(settings), 1), COLUMNS)
    pairs = [settings[first : first + columns] for first in range(0, len(settings), columns)] or [
        []
    ]
    rules = [_sorted_rules(runs, pair) for pair in pairs]
    called = style.names(sorted(set().union(*rules)), labels)
    wrapped = {rule: style.wrap(called.get(rule, rule), NAME) for names in rules for rule in names}
    lines_of_a_row = max((name.count("\n") + 1 for name in wrapped.values()), default=1)
    heights = [ROW * lines_of_a_row * max(len(names), 3) + SURROUNDINGS for names in rules]
    handles = [Line2D([], [], **look, label=name) for name, look in LEGEND.items()]
    figure = style.new_figure(title, height=sum(heights))
    ratios = {"height_ratios": heights}
    grid = figure.subplots(len(pairs), columns, squeeze=False, sharey="row", gridspec_kw=ratios)
    for axes, pair, names in zip(grid, pairs, rules):
        for ax, setting in zip(axes, pair):
            ax.set_title(style.wrap(labels.get(setting, setting), TITLE), fontsize=TEXT)
            _panel(ax, runs[runs["setting"] == setting], names)
        axes[0].set_yticks(range(len(names)), [wrapped[name] for name in names])
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        for ax in axes[len(pair) :]:
            ax.remove()
    style.legend_below(figure, handles)
    return figure


def _sorted_rules(runs: pd.DataFrame, settings: Sequence[str]) -> list[str]:
    """Return the rules by mean accuracy in the first setting that has them, the best first."""
    means = runs.groupby(["setting", "rule"])["accuracy"].mean()
    rules: list[str] = []
    for setting in settings:
        ranked = means[setting].sort_values(ascending=False, kind="stable").index
        rules += [rule for rule in ranked if rule not in rules]
    return rules


def _panel(ax: Axes, runs: pd.DataFrame, rules: Sequence[str]) -> None:
    for rule, group in runs.groupby("rule"):
        row = rules.index(rule)
        accuracy = summarise(group["accuracy"].astype(float))
        frozen = group["own_frozen_acc"].astype(float).mean()
        if accuracy.interval:
            ax.plot(accuracy.interval, [row, row], **INTERVAL)
        if not math.isnan(frozen):
            ax.plot([frozen, accuracy.mean], [row, row], **JOINED)
            ax.plot([frozen], [row], **FROZEN, label=f"{rule} frozen")
        ax.plot([accuracy.mean], [row], **TRAINED, label=f"{rule} trained")
    ax.tick_params(labelsize=TEXT, length=0, axis="y")
    ax.tick_params(labelsize=TEXT, axis="x")
    ax.grid(axis="y", color="0.92", linewidth=0.5)
    ax.set_xlabel("accuracy", fontsize=TEXT)
    ax.locator_params(axis="x", nbins=4)
    style.percent_scale(ax, "x")
