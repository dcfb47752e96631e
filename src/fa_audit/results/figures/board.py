"""The board as a figure: a row for every rule, a panel for every network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fa_audit.core.errors import AuditError
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.standings import with_standings
from fa_audit.results.statistics import summarise
from fa_audit.results.tidy import Tidy

ROW, SURROUNDINGS = 0.21, 0.8  # inches: of a line of text; title and axis of a panel
COLUMNS = 2  # networks side by side
NAME, TITLE = 22, 24  # characters in one line
TEXT = 10  # points: 9 pixels where the figure is 360 pixels wide
DOT = {"marker": "o", "linestyle": "none", "markersize": 5.5}
TRAINED = DOT | {"color": style.FINE}
FROZEN = DOT | {"color": style.GREY, "markerfacecolor": "white"}
JOINED = {"color": style.GREY, "linewidth": 1}
INTERVAL = {"color": style.FINE, "linewidth": 3.5, "alpha": 0.35, "solid_capstyle": "butt"}
LEGEND = {"trained": TRAINED, "own frozen blocks": FROZEN, "95 % interval over seeds": INTERVAL}


@style.styled
def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw a panel per network, two side by side that share their rows, and a row per rule.

    A row has the mean accuracy with its 95 % interval over the seeds, joined to the mean accuracy
    with the rule's own frozen blocks. Rows are sorted by accuracy in the left network, then in the
    right one. A variant of a rule has a row of its own.
    """
    runs = with_standings(tidy).runs.dropna(subset="accuracy")
    settings = [name for name in tidy.settings if name in set(runs["setting"])]
    if not settings:
        raise AuditError("board: found no accuracy of a rule; leave it out.")
    columns = min(len(settings), COLUMNS)
    pairs = [settings[first : first + columns] for first in range(0, len(settings), columns)]
    rules = [_sorted_rules(runs, pair) for pair in pairs]
    called = style.names(runs["rule"].unique(), labels)
    names = [[style.wrap(called.get(rule, rule), NAME) for rule in shown] for shown in rules]
    heights = [ROW * max("\n".join(shown).count("\n") + 1, 3) + SURROUNDINGS for shown in names]
    handles = [Line2D([], [], **look, label=name) for name, look in LEGEND.items()]
    figure = style.new_figure(title, height=sum(heights))
    ratios = {"height_ratios": heights}
    grid = figure.subplots(len(pairs), columns, squeeze=False, sharey="row", gridspec_kw=ratios)
    for row, pair in enumerate(pairs):
        for ax, setting in zip(grid[row], pair):
            ax.set_title(style.wrap(labels.get(setting, setting), TITLE), fontsize=TEXT)
            _panel(ax, runs[runs["setting"] == setting], rules[row])
        grid[row][0].set_yticks(range(len(names[row])), names[row])
        grid[row][0].set_ylim(len(names[row]) - 0.5, -0.5)
        for ax in grid[row][len(pair) :]:
            ax.remove()
    style.legend_below(figure, handles, fontsize=TEXT)
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
        accuracy, frozen = summarise(group["accuracy"]), group["own_frozen"].mean()
        if accuracy.interval:
            ax.plot(accuracy.interval, [row, row], **INTERVAL)
        # Matplotlib leaves out points that are NaN: a rule without a frozen baseline.
        ax.plot([frozen, accuracy.mean], [row, row], **JOINED)
        ax.plot([frozen], [row], **FROZEN, label=f"{rule} frozen")
        ax.plot([accuracy.mean], [row], **TRAINED, label=f"{rule} trained")
    ax.tick_params(labelsize=TEXT)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", color="0.92", linewidth=0.5)
    ax.set_xlabel("accuracy", fontsize=TEXT)
    ax.locator_params(axis="x", nbins=3)
    style.percent_scale(ax, "x")
