"""Both verdicts of every run in every setting: what holds across architectures and data sets, and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import style, text_grid
from fa_audit.results.outcomes import CHECKS, NON_FINITE, fails, reasons, walked_back
from fa_audit.results.over_seeds import verdict_over_seeds
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy

COLUMN_WIDTH, ROW_LABELS = 0.82, 1.45  # inches
SURROUNDINGS, HEADING_LINE = 1.35, 0.13  # inches: title and legend; one line of the settings' names
SYMBOLS = {letter: letter for letter in CHECKS} | {NON_FINITE: "\N{INFINITY}"}


@dataclass(frozen=True)
class State:
    """What a square looks like, and what that means."""

    meaning: str
    colour: str
    hatch: str


FAIL = State("three-check: FAIL in a seed", "#F0B9A0", "////")
WALK_BACK = State("four-check alone: walk-back in a seed", "#FBE3B5", "....")
INCOMPLETE = State("not everything evaluated", "#EDEDED", "\\\\\\\\")
PASS = State("passes both in all seeds", "#CFE5F3", "")


def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw a square for every run (rows, best mean accuracy over all settings first) and setting (columns).

    Its first line has what the four-check verdicts name: a letter for a check that fires in all seeds, (a letter) for
    one that fires in some. Its second line has the three-check result, ``FAIL`` before ``incomplete`` before ``pass``,
    and in how many of the seeds it is that. A third line names the checks that are borderline over the seeds and whose
    other outcome would change the four-check verdict.
    """
    order = rank_runs(tidy.runs)
    groups = dict(list(tidy.runs.groupby(["setting", "run"])))
    rows = [labels.get(run, run) for run in order]
    width = max(style.TWO_COLUMNS, ROW_LABELS + COLUMN_WIDTH * len(tidy.settings))
    characters = int(16 * (width - ROW_LABELS) / len(tidy.settings))
    columns = [text_grid.wrap(labels.get(setting, setting), characters) for setting in tidy.settings]
    heading = HEADING_LINE * max(column.count("\n") + 1 for column in columns)
    with style.context():
        lines = 2 + any(map(_borderline, groups.values()))
        height = text_grid.heights(rows, lines=lines) + SURROUNDINGS + heading
        figure = style.new_figure(title, height=height, width=width)
        ax = figure.subplots()
        text_grid.frame(ax, rows, columns)
        for row, run in enumerate(order):
            for column, setting in enumerate(tidy.settings):
                if (setting, run) in groups:
                    state, text = _state(groups[setting, run]), _text(groups[setting, run])
                    text_grid.square(ax, row, column, text, colour=state.colour, hatch=state.hatch)
                else:
                    text_grid.square(ax, row, column, "not run", colour=text_grid.WHITE, ink=style.GREY)
        figure.legend(handles=_legend(), loc="outside lower center", ncols=2, title=_key(), title_fontsize=style.SMALL)
        return style.freeze_layout(figure)


def _state(group: pd.DataFrame) -> State:
    """Return the worst outcome of a seed."""
    failed, withdrawn = fails(group), walked_back(group)
    if failed.any():
        return FAIL
    if withdrawn.any():
        return WALK_BACK
    return INCOMPLETE if failed.isna().any() or withdrawn.isna().any() else PASS


def _text(group: pd.DataFrame) -> str:
    """Return what the four-check verdicts name; the worst three-check outcome over the seeds, and how many have it."""
    failed = fails(group)
    counts = {"FAIL": failed.sum(), "incomplete": failed.isna().sum(), "pass": (~failed).sum()}
    worst = next(outcome for outcome, count in counts.items() if count)
    doubtful = f"\nborderline {', '.join(found)}" if (found := _borderline(group)) else ""
    return f"{_reasons(group)}\n{worst} {counts[worst]}/{len(group)}{doubtful}"


def _borderline(group: pd.DataFrame) -> tuple[str, ...]:
    return verdict_over_seeds(group.to_dict("records")).borderline


def _reasons(group: pd.DataFrame) -> str:
    """Return the letters of what fires in all seeds, and in parentheses of what fires in some."""
    counts = reasons(group).sum()
    if not counts.any():
        return "incomplete" if walked_back(group).isna().any() else "trustworthy"
    return ", ".join(
        symbol if counts[reason] == len(group) else f"({symbol})"
        for reason, symbol in SYMBOLS.items()
        if counts[reason]
    )


def _key() -> str:
    return (
        "first line: four-check verdict (a growth, b reference, c stability, d depth utility, \N{INFINITY} non-finite;"
        "\nin parentheses what fires in some seeds only); second line: three-check verdict, in how many seeds;"
        "\nborderline: checks whose 95 % interval over the seeds contains their limit"
    )


def _legend() -> list[Patch]:
    states = (FAIL, WALK_BACK, INCOMPLETE, PASS)
    return [text_grid.patch(state.meaning, colour=state.colour, hatch=state.hatch) for state in states]
