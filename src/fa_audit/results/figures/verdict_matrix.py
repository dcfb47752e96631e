"""Both verdicts of every run in every setting: what holds across architectures and data sets, and what does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from fa_audit.core.checks import CHECKS, lettered
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import style, text_grid
from fa_audit.results.outcomes import NON_FINITE, fails, reasons, walked_back
from fa_audit.results.over_seeds import verdict_over_seeds
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy

PER_LINE = 6  # squares, before a setting takes a second line
SURROUNDINGS = 1.4  # inches: title and legend
ROW_LABEL, CHARACTERS = 16, 72  # characters of a line of a setting's name, and of all squares in a line
INFINITE = "\N{INFINITY}"
NAMES = ", ".join(f"{letter} {CHECKS[check].short.lower()}" for letter, check in lettered().items())
KEY = (
    f"second line: four-check verdict ({NAMES},"
    f"\n{INFINITE} non-finite; in parentheses what fires in some seeds only); third line: three-check verdict,"
    "\nin how many seeds; borderline: checks whose 95 % interval over the seeds contains their limit"
)


@dataclass(frozen=True)
class State:
    """The look of a square, and its meaning."""

    meaning: str
    colour: str
    hatch: str


FAIL = State("three-check: FAIL in a seed", "#F0B9A0", "////")
WALK_BACK = State("four-check alone: walk-back in a seed", "#FBE3B5", "....")
INCOMPLETE = State("not everything evaluated", "#EDEDED", "\\\\\\\\")
PASS = State("passes both in all seeds", "#CFE5F3", "")


@style.styled
def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw a square for every run (rows, best mean accuracy over all settings first) and setting (columns).

    Its first line has what the four-check verdicts name: a letter for a check that fires in all seeds, (a letter) for
    one that fires in some. Its second line has the three-check result, ``FAIL`` before ``incomplete`` before ``pass``,
    and in how many of the seeds it is that. A third line names the checks that are borderline over the seeds and whose
    other outcome would change the four-check verdict.
    """
    groups = dict(list(tidy.runs.groupby(["setting", "run"])))
    rows = [(name, [*runs]) for setting in tidy.settings for name, runs in _lines(tidy, setting, labels)]
    width = max(len(keys) for _, keys in rows)
    room = CHARACTERS // width
    texts = {
        key: f"{text_grid.wrap(labels.get(key[1], key[1]), room)}\n{_text(group, room)}"
        for key, group in groups.items()
    }
    names = [name for name, _ in rows]
    tallest = 1 + max(text.count("\n") for text in [*texts.values(), *names])
    figure = style.new_figure(title, height=len(rows) * (tallest * text_grid.LINE + 0.12) + SURROUNDINGS)
    ax = figure.subplots()
    text_grid.frame(ax, names, [""] * width)
    for row, (_, keys) in enumerate(rows):
        for column, key in enumerate(keys):
            state = _state(groups[key])
            text_grid.square(ax, row, column, texts[key], colour=state.colour, hatch=state.hatch)
    states = (FAIL, WALK_BACK, INCOMPLETE, PASS)
    handles = [text_grid.patch(state.meaning, colour=state.colour, hatch=state.hatch) for state in states]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, title=KEY, title_fontsize=style.SMALL)
    return figure


def _lines(tidy: Tidy, setting: str, labels: Mapping[str, str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the lines of a setting: its name in the first, and (setting, run), those of most settings first."""
    settings = tidy.runs.groupby("run")["setting"].nunique()
    present = set(tidy.of(setting).runs["run"])
    ordered = [run for run in sorted(rank_runs(tidy.runs), key=lambda run: -settings[run]) if run in present]
    for first in range(0, len(ordered), PER_LINE):
        name = "" if first else text_grid.wrap(labels.get(setting, setting), ROW_LABEL)
        yield name, [(setting, run) for run in ordered[first : first + PER_LINE]]


def _state(group: pd.DataFrame) -> State:
    """Return the worst outcome of a seed."""
    failed, withdrawn = fails(group), walked_back(group)
    if failed.any():
        return FAIL
    if withdrawn.any():
        return WALK_BACK
    return INCOMPLETE if failed.isna().any() or withdrawn.isna().any() else PASS


def _text(group: pd.DataFrame, room: int) -> str:
    """Return what the four-check verdicts name; the worst three-check outcome over the seeds, and how many have it.

    Args:
        room: characters that stand beside each other in the square; of letters, which are narrow, more do.
    """
    failed = fails(group)
    counts = {"FAIL": failed.sum(), "incomplete": failed.isna().sum(), "pass": (~failed).sum()}
    worst = next(outcome for outcome, count in counts.items() if count)
    letters = verdict_over_seeds(group.to_dict("records")).borderline
    found = f"borderline {', '.join(letters)}" if letters else ""
    doubtful = found if len(found) <= room else found.replace(" ", "\n", 1)
    lines = [text_grid.wrap(_reasons(group), room * 3 // 2), f"{worst} {counts[worst]}/{len(group)}", doubtful]
    return "\n".join(filter(None, lines))


def _reasons(group: pd.DataFrame) -> str:
    """Return the letters of what fires in all seeds, and in parentheses of what fires in some."""
    counts = reasons(group).sum()
    if not counts.any():
        return "incomplete" if walked_back(group).isna().any() else "trustworthy"
    found = []
    for reason in filter(counts.get, [*lettered(), NON_FINITE]):
        symbol = INFINITE if reason == NON_FINITE else reason
        found.append(symbol if counts[reason] == len(group) else f"({symbol})")
    return ", ".join(found)
