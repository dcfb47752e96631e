"""Both verdicts of every run in every setting: what holds across architectures and data sets, and what does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import cells, style
from fa_audit.results.figures.verdicts import CHECKS, named
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy

COLUMN_WIDTH, ROW_LABELS = 0.82, 1.45  # inches
SURROUNDINGS, HEADING_LINE = 1.25, 0.13  # inches: title and legend; one line of the settings' names
SYMBOLS = {letter: letter for letter in CHECKS} | {"non-finite": "\N{INFINITY}"}


@dataclass(frozen=True)
class State:
    """How a cell looks, and what that means."""

    meaning: str
    colour: str
    hatch: str


FAIL = State("three-check: FAIL in a seed", "#F0B9A0", "////")
WALK_BACK = State("four-check alone: walk-back in a seed", "#FBE3B5", "....")
INCOMPLETE = State("not everything evaluated", "#EDEDED", "\\\\\\\\")
PASS = State("passes both in all seeds", "#CFE5F3", "")


def draw(
    tidy: Tidy,
    *,
    title: str,
    labels: Mapping[str, str],
    thresholds: DiagnosticThresholds | None = None,
) -> Figure:
    """A cell for every run (rows, best mean accuracy over all settings first) and setting (columns).

    Its first line has what the four-check verdicts name: a letter for a check that fires in all seeds, (a letter) for
    one that fires in some. Its second line has the three-check result, ``FAIL`` before ``incomplete`` before ``pass``,
    and in how many of the seeds it is that.

    Args:
        tidy: one or more settings.
        labels: how to print a run or a setting; its name where it is not listed.
        thresholds: not used, verdicts are those of the audits; every figure is called alike.
    """
    order = rank_runs(tidy.runs)
    groups = dict(list(tidy.runs.groupby(["setting", "run"])))
    rows = [labels.get(run, run) for run in order]
    width = max(style.TWO_COLUMNS, ROW_LABELS + COLUMN_WIDTH * len(tidy.settings))
    characters = int(16 * (width - ROW_LABELS) / len(tidy.settings))
    columns = [cells.wrap(labels.get(setting, setting), characters) for setting in tidy.settings]
    heading = HEADING_LINE * max(column.count("\n") + 1 for column in columns)
    with style.context():
        height = cells.heights(rows, lines=2) + SURROUNDINGS + heading
        figure = style.new_figure(title, height=height, width=width)
        ax = figure.subplots()
        cells.frame(ax, rows, columns)
        for row, run in enumerate(order):
            for column, setting in enumerate(tidy.settings):
                if (setting, run) in groups:
                    _cell(ax, row, column, groups[setting, run])
                else:
                    cells.cell(ax, row, column, "not run", colour=cells.WHITE, ink=style.GREY)
        figure.legend(handles=_legend(), loc="outside lower center", ncols=2, title=_key(), title_fontsize=style.SMALL)
        return style.settle(figure)


def _cell(ax: Axes, row: int, column: int, group: pd.DataFrame) -> None:
    state = _state(group)
    text = f"{_reasons(group['four_check'])}\n{_result(group['three_check'])}"
    cells.cell(ax, row, column, text, colour=state.colour, hatch=state.hatch)


def _state(group: pd.DataFrame) -> State:
    """The worst that a seed was found to be."""
    three, four = group["three_check"].map(_outcome), group["four_check"]
    if (three == "FAIL").any():
        return FAIL
    if four.map(named).map(bool).any():
        return WALK_BACK
    return PASS if (three == "pass").all() and (four == "trustworthy").all() else INCOMPLETE


def _reasons(four_check: pd.Series) -> str:
    """The letters that the verdicts of all seeds name, and in parentheses those that some name."""
    counts = Counter(reason for verdict in four_check for reason in named(verdict))
    if not counts:
        return "trustworthy" if (four_check == "trustworthy").all() else "incomplete"
    return ", ".join(
        symbol if counts[reason] == len(four_check) else f"({symbol})"
        for reason, symbol in SYMBOLS.items()
        if counts[reason]
    )


def _result(three_check: pd.Series) -> str:
    """The worst outcome over the seeds, and how many have it."""
    counts = Counter(three_check.map(_outcome))
    worst = next(outcome for outcome in ("FAIL", "incomplete", "pass") if counts[outcome])
    return f"{worst} {counts[worst]}/{len(three_check)}"


def _outcome(three_check: object) -> str:
    """``FAIL``, ``pass`` or, for everything that is no answer, ``incomplete``."""
    kind = str(three_check).partition("(")[0]
    return {"FAIL": "FAIL", "PASS": "pass"}.get(kind, "incomplete")


def _key() -> str:
    return (
        "first line: four-check verdict (a growth, b reference, c stability, d depth utility, \N{INFINITY} non-finite;"
        "\nin parentheses what fires in some seeds only); second line: three-check verdict, in how many seeds"
    )


def _legend() -> list[Patch]:
    return [
        Patch(facecolor=state.colour, hatch=state.hatch, edgecolor=cells.HATCH, linewidth=0.5, label=state.meaning)
        for state in (FAIL, WALK_BACK, INCOMPLETE, PASS)
    ]
