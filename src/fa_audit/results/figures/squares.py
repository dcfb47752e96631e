"""Grids of squares with a text in each: verdicts by run and setting, withdrawals by run and
strategy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from fa_audit.protocol.checks import CHECKS, lettered
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.protocol.over_seeds import verdict_over_seeds
from fa_audit.results.figures import style, text_grid
from fa_audit.results.outcomes import NON_FINITE, fails, reasons, walked_back, withdrawals
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy

PER_LINE = 6  # squares, before a setting takes a second line
SURROUNDINGS = 1.4  # inches: title and legend
ROW_LABEL, CHARACTERS = (
    16,
    72,
)  # characters of a line of a setting's name, and of all squares in a line
WHITE, HATCH = "#FFFFFF", "0.62"
INFINITE = "\N{INFINITY}"
NAMES = ", ".join(f"{letter} {CHECKS[check].short.lower()}" for letter, check in lettered().items())
KEY = (
    f"second line: four-check verdict ({NAMES},"
    f"\n{INFINITE} non-finite; in parentheses what fires in some seeds only); third line: three-check verdict,"
    "\nin how many seeds; borderline: checks whose 95 % interval over the seeds contains their limit"
)


class Look(NamedTuple):
    """The look of a square, and its meaning."""

    meaning: str
    colour: str
    hatch: str = ""


FAIL = Look("three-check: FAIL in a seed", "#F0B9A0", "////")
WALK_BACK = Look("four-check alone: walk-back in a seed", "#FBE3B5", "....")
INCOMPLETE = Look("not everything evaluated", "#EDEDED", "\\\\\\\\")
PASS = Look("passes both in all seeds", "#CFE5F3")


@style.styled
def verdict_matrix(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw a square for every run (rows, best mean accuracy over all settings first) and setting
    (columns).

    Its first line has what the four-check verdicts name: a letter for a check that fires in all
    seeds, (a letter) for one that fires in some. Its second line has the three-check result,
    ``FAIL`` before ``incomplete`` before ``pass``, and in how many of the seeds it is that. A third
    line names the checks that are borderline over the seeds and whose other outcome would change
    the four-check verdict.
    """
    groups = dict(list(tidy.runs.groupby(["setting", "run"])))
    rows = [
        (name, [*runs]) for setting in tidy.settings for name, runs in _lines(tidy, setting, labels)
    ]
    width = max(len(keys) for _, keys in rows)
    room = CHARACTERS // width
    texts = {
        key: f"{text_grid.wrap(labels.get(key[1], key[1]), room)}\n{_text(group, room)}"
        for key, group in groups.items()
    }
    names = [name for name, _ in rows]
    tallest = 1 + max(text.count("\n") for text in [*texts.values(), *names])
    figure = style.new_figure(
        title, height=len(rows) * (tallest * text_grid.LINE + 0.12) + SURROUNDINGS
    )
    ax = figure.subplots()
    _frame(ax, names, [""] * width)
    for row, (_, keys) in enumerate(rows):
        for column, key in enumerate(keys):
            _square(ax, row, column, texts[key], _look(groups[key]))
    handles = list(map(_patch, (FAIL, WALK_BACK, INCOMPLETE, PASS)))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=2, title=KEY, title_fontsize=style.SMALL
    )
    return figure


def _lines(
    tidy: Tidy, setting: str, labels: Mapping[str, str]
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the lines of a setting: its name in the first, and (setting, run), those of most
    settings first.
    """
    settings = tidy.runs.groupby("run")["setting"].nunique()
    present = set(tidy.of(setting).runs["run"])
    ordered = [
        run
        for run in sorted(rank_runs(tidy.runs), key=lambda run: -settings[run])
        if run in present
    ]
    for first in range(0, len(ordered), PER_LINE):
        name = "" if first else text_grid.wrap(labels.get(setting, setting), ROW_LABEL)
        yield name, [(setting, run) for run in ordered[first : first + PER_LINE]]


def _look(group: pd.DataFrame) -> Look:
    """Return the worst outcome of a seed."""
    failed, withdrawn = fails(group), walked_back(group)
    if failed.any():
        return FAIL
    if withdrawn.any():
        return WALK_BACK
    return INCOMPLETE if failed.isna().any() or withdrawn.isna().any() else PASS


def _text(group: pd.DataFrame, room: int) -> str:
    """Return what the four-check verdicts name; the worst three-check outcome over the seeds, and
    how many have it.

    Args:
        room: characters that stand beside each other in the square; of letters, which are narrow,
            more do.
    """
    failed = fails(group)
    counts = {"FAIL": failed.sum(), "incomplete": failed.isna().sum(), "pass": (~failed).sum()}
    worst = next(outcome for outcome, count in counts.items() if count)
    letters = verdict_over_seeds(group.to_dict("records")).borderline
    found = f"borderline {', '.join(letters)}" if letters else ""
    doubtful = found if len(found) <= room else found.replace(" ", "\n", 1)
    lines = [
        text_grid.wrap(_reasons(group), room * 3 // 2),
        f"{worst} {counts[worst]}/{len(group)}",
        doubtful,
    ]
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


# A strategy is a rule by which a reader withdraws ("walks back") a trained network. All of them see
# its accuracy: accuracy        nothing else, and so nothing to compare with (chance level is in no
# report): withdraws nothing + cosine        the mean over all blocks of the cosine between credit
# and gradient: withdraws where it is <= 0 + shallow       the accuracy of the network without
# blocks (bp+shallow): withdraws where accuracy is not above it + (a) ... (d)   one check of the
# protocol: withdraws where it fires, i.e. where the four-check verdict names it full protocol   the
# four-check verdict: withdraws where it needs walk-back The first two are the field's usual reports
# (Hao, Wan, Zhai 2026).
STRATEGIES = {
    "accuracy": "accuracy\nonly",
    "cosine": "accuracy\n+ cosine",
    "shallow": "accuracy\n+ shallow\nbaseline",
    **{
        letter: f"accuracy\n+ ({letter})\n{CHECKS[check].short.lower()}"
        for letter, check in lettered().items()
    },
    "full": "full\nprotocol",
}
AROUND = 1.3  # inches: title, headings and legend
COLOURS = colormaps["Blues"]
DARKEST, WHITE_INK = (
    0.85,
    0.8,
)  # place in the colour map of a fraction of 1; fraction from which ink is white
MISSING = Look("n/a: not measured", "#F4F4F4", "\\\\\\\\")


@style.styled
def decision_utility(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw the fraction of each run's seeds that each strategy withdraws, over all settings
    together.

    A square has the number withdrawn and the number for which the strategy has what it needs;
    ``n/a`` where that is none. Rows stand by mean accuracy, best first.
    """
    withdrawn = withdrawals(tidy)
    order = rank_runs(tidy.runs)
    rows = [labels.get(run, run) for run in order]
    figure = style.new_figure(title, height=text_grid.heights(rows, lines=1) + AROUND)
    ax = figure.subplots()
    _frame(ax, rows, list(STRATEGIES.values()))
    for row, run in enumerate(order):
        for column, strategy in enumerate(STRATEGIES):
            decided = withdrawn.loc[tidy.runs["run"] == run, strategy].dropna()
            text = f"{int(decided.sum())}/{len(decided)}" if len(decided) else "n/a"
            look = _shade(decided.mean()) if len(decided) else MISSING
            _square(
                ax, row, column, text, look, ink="white" if decided.mean() >= WHITE_INK else "black"
            )
    shades = [
        _shade(part)._replace(meaning=text)
        for part, text in {0.0: "none", 0.5: "half", 1.0: "all"}.items()
    ]
    handles = [Patch(alpha=0, label="withdrawn:"), *map(_patch, [*shades, MISSING])]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def _shade(fraction: float) -> Look:
    return Look("", to_hex(COLOURS(DARKEST * fraction)))


def _frame(ax: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Prepare an empty grid: row labels on the left, column labels above, row 0 on top."""
    text_grid.name_rows(ax, [text_grid.wrap(row, text_grid.LABEL_WIDTH) for row in rows])
    text_grid.name_columns(ax, columns)
    ax.set_xlim(-0.5, len(columns) - 0.5)


def _square(ax: Axes, row: int, column: int, text: str, look: Look, *, ink: str = "black") -> None:
    """Draw a filled, possibly hatched square with its text in the middle, the hatch kept off the
    text.
    """
    place = (column - 0.5, row - 0.5), 1, 1
    ax.add_patch(
        Rectangle(*place, facecolor=look.colour, edgecolor=HATCH, hatch=look.hatch, linewidth=0)
    )
    ax.add_patch(Rectangle(*place, fill=False, edgecolor=WHITE, linewidth=1.5))
    around = {"facecolor": look.colour, "edgecolor": "none", "boxstyle": "square,pad=0.15"}
    ax.text(
        column, row, text, ha="center", va="center", fontsize=style.SMALL, color=ink, bbox=around
    )


def _patch(look: Look) -> Patch:
    """Return the legend entry of squares that look like this."""
    return Patch(
        facecolor=look.colour, hatch=look.hatch, edgecolor=HATCH, linewidth=0.5, label=look.meaning
    )
