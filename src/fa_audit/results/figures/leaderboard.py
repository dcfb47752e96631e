"""The leaderboard: what trained blocks add to frozen ones, method by method, and which checks fire."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fa_audit.core.checks import lettered
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.documents.formats import PLAIN, Number, render
from fa_audit.results.figures import lines, style, text_grid
from fa_audit.results.standings import (
    BUSY,
    CHECKS_TEXT,
    checks_of,
    learning_rates,
    nature,
    of_run,
    standing,
    with_margins,
)
from fa_audit.results.statistics import summarise
from fa_audit.results.tidy import Tidy

ROW, PANEL, SURROUNDINGS = 0.05, 0.62, 1.15  # inches: around a row's lines; of a panel's title and axis; of the legend
HEADING_WIDTH = 60  # characters of a panel's title in one line
FIRST, NEXT = 26, 15  # points right of the panel: a row's checks
OUTCOMES = {True: "\N{BLACK CIRCLE}", False: "\N{WHITE CIRCLE}", None: "\N{EN DASH}"}
DOUBT = "?"
MARK = {"color": style.GREY, "linestyle": "none"}
FROZEN = MARK | {"marker": "o", "markersize": 3.5, "markerfacecolor": "white", "markeredgewidth": 0.8,
                 "label": "own frozen baseline"}  # fmt: skip
ASKED = MARK | {"marker": "|", "markersize": 7, "markeredgewidth": 1}
SEED = MARK | {"marker": ".", "markersize": 3, "markeredgewidth": 0, "label": "one seed"}
INTERVAL = {"color": style.GREY, "linewidth": 0.7, "label": "95 % interval of the margin"}


@style.styled
def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw a panel per network and a row per run: accuracy, joined to that of the same network with frozen blocks.

    The largest mean margin stands on top. To the right: seeds, checks over the seeds, and seconds over those of bp. An
    interval is cut where it leaves the panel.
    """
    ranked = with_margins(tidy)
    groups: dict[str, dict[str, pd.DataFrame]] = {setting: {} for setting in tidy.settings}
    for setting, run in standing(ranked):
        groups[setting][run] = of_run(ranked, setting, run)
    names = [[_name(run, group, labels) for run, group in runs.items()] for runs in groups.values()]
    heights = [text_grid.heights(texts, lines=1) + ROW * len(texts) for texts in names]
    figure = style.new_figure(title, height=sum(heights) + PANEL * len(heights) + SURROUNDINGS)
    axes = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights).ravel()
    looks, margin = style.run_styles(ranked.runs["run"]), thresholds.limits["depth_margin"]
    for ax, (setting, runs), texts in zip(axes, groups.items(), names):
        ax.set_title(text_grid.wrap(labels.get(setting, setting), HEADING_WIDTH))
        _frame(ax, texts)
        for row, (run, group) in enumerate(runs.items()):
            _run(ax, row, group, looks[run], margin, label=run)
        _limits(ax, pd.concat(list(runs.values())), margin)
    handles = [
        Line2D([], [], color=style.GREY, marker="s", linewidth=1.6, label="accuracy, joined to its frozen baseline"),
        Line2D([], [], **FROZEN),
        Line2D([], [], **ASKED, label=f"frozen + {100 * margin:g} points: (d) fires below"),
        Line2D([], [], **INTERVAL),
        Line2D([], [], **SEED),
        Line2D([], [], **style.BORDERLINE, label="(d) borderline over the seeds"),
    ]
    key = _key(learning_rates(tidy, labels), busy=ranked.runs[BUSY].eq(True).any())
    place = {"loc": "outside lower center", "ncols": 2}
    figure.legend(handles=handles, title=key, title_fontsize=style.SMALL, **place)
    return figure


def _name(run: str, group: pd.DataFrame, labels: Mapping[str, str]) -> str:
    """Return how a run is called: by its name, or by its label and what it is where that is no plain method."""
    what, label = nature(group.iloc[0]), labels.get(run, run)
    others = {name: text for name, text in labels.items() if name != run}
    said = run not in labels or what == "method" or label == style.names([run], others).get(run)
    return label if said else f"{label} ({what})"


def _frame(ax: Axes, names: Sequence[str]) -> None:
    text_grid.name_rows(ax, [text_grid.wrap(name, text_grid.LABEL_WIDTH) for name in names])
    ax.spines["left"].set_visible(False)
    ax.grid(axis="y", color="0.9", linewidth=0.5)
    style.percent_scale(ax, "x")
    for text, place in _columns().items():
        style.margin_note(ax, text, (1, -0.85), gap=place, ha="center", fontsize=style.SMALL, weight="bold")


def _run(ax: Axes, row: int, group: pd.DataFrame, look: style.RunStyle, margin: float, *, label: str) -> None:
    """Draw one run: frozen accuracy, accuracy and their difference, its interval, the seeds; beside it the checks."""
    accuracy, frozen = (lines.mean(group[name].to_numpy(float)) for name in ("accuracy", "own_frozen_acc"))
    checks = checks_of(group)
    ax.plot([frozen, accuracy], [row, row], color=look.colour, linewidth=1.6, alpha=0.6, label="margin")
    if ends := _interval(group):
        ax.plot([frozen + end for end in ends], [row + 0.28] * 2, **INTERVAL)
    ax.plot(group["accuracy"].to_numpy(float), np.full(len(group), row - 0.28), **SEED)
    ax.plot([frozen], [row], **FROZEN)
    ax.plot([frozen + margin], [row], **ASKED, label="asked")
    ax.plot([accuracy], [row], **look.mark, linestyle="none", label=label)
    if checks["d"].borderline:
        ax.plot([accuracy], [row], **style.BORDERLINE, label="borderline")
    marks = [OUTCOMES[check.fires] + DOUBT * check.borderline for check in checks.values()]
    texts = [str(len(group)), *marks, render(Number(group["cost"].mean(), decimals=1), PLAIN)]
    for text, place in zip(texts, _columns().values()):
        style.margin_note(ax, text, (1, row), gap=place, ha="center", fontsize=style.SMALL)


def _columns() -> dict[str, int]:
    """Return what stands beside a panel: heading -> points right of it."""
    letters = {letter: FIRST + NEXT * place for place, letter in enumerate(lettered())}
    return {"n": 9} | letters | {"time": max(letters.values()) + 22}


def _interval(group: pd.DataFrame) -> tuple[float, ...] | None:
    """Return the interval of the margin over the seeds, of one seed over its test samples."""
    if len(group) == 1:
        ends = group[["depth_interval_low", "depth_interval_high"]].iloc[0].astype(float)
        return tuple(ends) if ends.notna().all() else None
    known = group["margin"].dropna()
    return summarise(known).interval if len(known) else None


def _limits(ax: Axes, rows: pd.DataFrame, margin: float) -> None:
    """Show every accuracy with room around it, whatever the intervals; where there is none, 0 to 100 %."""
    shown = np.concatenate([rows["accuracy"], rows["own_frozen_acc"], rows["own_frozen_acc"] + margin]).astype(float)
    shown = shown[np.isfinite(shown)]
    low, high = (shown.min(), shown.max()) if shown.size else (0.0, 1.0)
    around = 0.06 * (high - low) or 0.05
    ax.set_xlim(low - around, high + around)


def _key(rates: str, *, busy: bool) -> str:
    rates = re.sub(r"\d(?:\.\d+)?e-?\d+", lambda found: style.power(float(found[0])), rates)
    rough = " (rough: measured beside other work)" if busy else ""
    return (
        f"right of a panel: seeds n; checks {CHECKS_TEXT}: {OUTCOMES[True]} fires, {OUTCOMES[False]} fine, "
        f"{OUTCOMES[None]} not evaluated,\n"
        f"{DOUBT} borderline over the seeds; time: training over that of bp, same device{rough}\n"
        f"{text_grid.wrap(rates, 110)}"
    )
