"""The board as a figure: a row for every rule, a panel for every network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fa_audit.core.errors import AuditError
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.standings import with_standings
from fa_audit.results.statistics import summarise
from fa_audit.results.tidy import Tidy

_TEXT = 10  # points: 9 pixels if a page shows the figure 360 pixels wide
_DOT = {"marker": "o", "linestyle": "none", "markersize": 5.5}
_TRAINED = _DOT | {"color": style.LOOKS["ep"][0]}
_FROZEN = _DOT | {"color": style.GREY, "markerfacecolor": "white"}
_INTERVAL = {
    "color": _TRAINED["color"],
    "linewidth": 3.5,
    "alpha": 0.35,
    "solid_capstyle": "butt",
}


@style.styled
def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Accuracy of every rule (row) in every network (panel): the mean with its 95 % interval over
    the seeds, joined to the mean accuracy of the rule's own frozen baseline. Two panels side by
    side share the scale and the rows: first the rules of the left network, then those that only the
    right network has, each sorted by accuracy. A variant of a rule has a row of its own; one that
    only the right network has is below the other variants.
    """
    runs = with_standings(tidy).runs.dropna(subset="accuracy")
    settings = [name for name in tidy.settings if name in set(runs["setting"])]
    if not settings:
        raise AuditError("board: found no rule with an accuracy; leave the figure out.")
    columns = min(len(settings), 2)
    pairs = [settings[first : first + columns] for first in range(0, len(settings), columns)]
    called = style.names(runs["rule"].unique(), labels)
    rules, names, heights = [], [], []
    for pair in pairs:
        rules.append(_sorted_rules(runs, pair, labels))
        names.append([style.wrap(called.get(rule, rule), 22) for rule in rules[-1]])
        # In one row of panels, every rule is as high as the tallest name needs.
        lines = len(names[-1]) * (max(name.count("\n") for name in names[-1]) + 1)
        heights.append(0.21 * max(lines, 3) + 0.8)
    figure = style.new_figure(title, height=sum(heights))
    options = {"squeeze": False, "sharex": "row", "sharey": "row", "height_ratios": heights}
    for row, panels in enumerate(figure.subplots(len(pairs), columns, **options)):
        for ax, setting in zip(panels, pairs[row]):
            ax.set_title(style.wrap(labels.get(setting, setting)), fontsize=_TEXT)
            _panel(ax, runs[runs["setting"] == setting], rules[row])
        style.name_rows(panels[0], names[row])
        for ax in panels[len(pairs[row]) :]:
            ax.remove()
    entries = {
        "trained": _TRAINED,
        "own frozen baseline": _FROZEN,
        "95 % interval over seeds": _INTERVAL,
    }
    style.legend_below(figure, entries, fontsize=_TEXT)
    return figure


def _sorted_rules(
    runs: pd.DataFrame, settings: Sequence[str], labels: Mapping[str, str]
) -> list[str]:
    """Rank the first setting's rules by mean accuracy. A rule that only the second setting has comes
    below other variants, whose methods have the same label up to a comma, or else last.
    """
    means = runs.groupby(["setting", "rule"])["accuracy"].mean()
    bases = runs["method"].map(lambda method: labels.get(method, method).partition(",")[0])
    base = dict(zip(runs["rule"], bases))
    rules: list[str] = []
    for setting in settings:
        for rule in means[setting].sort_values(ascending=False, kind="stable").index:
            if rule in rules:
                continue
            variants = [row for row, other in enumerate(rules) if base[other] == base[rule]]
            below = variants[-1] + 1 if variants and setting != settings[0] else len(rules)
            rules.insert(below, rule)
    return rules


def _panel(ax: Axes, runs: pd.DataFrame, rules: Sequence[str]) -> None:
    for rule, seeds in runs.groupby("rule"):
        row = rules.index(rule)
        accuracy, frozen = summarise(seeds["accuracy"]), seeds["own_frozen"].mean()
        if accuracy.interval:
            ax.plot(accuracy.interval, [row, row], **_INTERVAL)
        # Matplotlib leaves out NaN, the accuracy of a missing frozen baseline.
        ax.plot([frozen, accuracy.mean], [row, row], color=style.GREY, linewidth=1)
        ax.plot([frozen], [row], **_FROZEN, label=f"{rule} frozen")
        ax.plot([accuracy.mean], [row], **_TRAINED, label=f"{rule} trained")
    ax.tick_params(labelsize=_TEXT)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", color="0.92", linewidth=0.5)
    ax.set_xlabel("accuracy", fontsize=_TEXT)
    ax.locator_params(axis="x", nbins=3)
    style.percent_scale(ax, "x")
