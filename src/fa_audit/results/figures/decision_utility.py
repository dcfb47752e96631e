"""What different reporting strategies would have withdrawn: accuracy and cosine against each check and the protocol.

A strategy is a rule by which a reader withdraws ("walks back") a trained network. All of them see its accuracy; they
differ in what else they see:

    accuracy        nothing else, and so nothing to compare with (chance level is in no report): withdraws nothing
    + cosine        the mean over all blocks of the cosine between credit and gradient: withdraws where it is <= 0
    + shallow       the accuracy of the network without blocks (bp+shallow): withdraws where accuracy is not above it
    + (a) ... (d)   one check of the protocol: withdraws where it fires, i.e. where the four-check verdict names it
    full protocol   the four-check verdict: withdraws where it needs walk-back

The first two are the field's usual reports (Hao, Wan, Zhai 2026).
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fa_audit.core.checks import CHECKS, lettered
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import style, text_grid
from fa_audit.results.outcomes import withdrawals
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy

STRATEGIES = {
    "accuracy": "accuracy\nonly",
    "cosine": "accuracy\n+ cosine",
    "shallow": "accuracy\n+ shallow\nbaseline",
    **{letter: f"accuracy\n+ ({letter})\n{CHECKS[check].short.lower()}" for letter, check in lettered().items()},
    "full": "full\nprotocol",
}
SURROUNDINGS = 1.3  # inches: title, headings and legend
COLOURS = colormaps["Blues"]
DARKEST, WHITE_INK = 0.85, 0.8  # of the colour map at a fraction of 1; the fraction from which ink is white
MISSING, MISSING_HATCH = "#F4F4F4", "\\\\\\\\"


@style.styled
def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw the fraction of each run's seeds that each strategy withdraws, over all settings together.

    A square has the number withdrawn and the number for which the strategy has what it needs; ``n/a`` where that is
    none. Rows stand by mean accuracy, best first.
    """
    withdrawn = withdrawals(tidy)
    order = rank_runs(tidy.runs)
    rows = [labels.get(run, run) for run in order]
    figure = style.new_figure(title, height=text_grid.heights(rows, lines=1) + SURROUNDINGS)
    ax = figure.subplots()
    text_grid.frame(ax, rows, list(STRATEGIES.values()))
    for row, run in enumerate(order):
        for column, strategy in enumerate(STRATEGIES):
            _square(ax, row, column, withdrawn.loc[tidy.runs["run"] == run, strategy].dropna())
    parts = {0.0: "none", 0.5: "half", 1.0: "all"}
    shades = [text_grid.patch(label, colour=_colour(part)) for part, label in parts.items()]
    missing = text_grid.patch("n/a: not measured", colour=MISSING, hatch=MISSING_HATCH)
    handles = [Patch(alpha=0, label="withdrawn:"), *shades, missing]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def _square(ax: Axes, row: int, column: int, decided: pd.Series) -> None:
    if decided.empty:
        text_grid.square(ax, row, column, "n/a", colour=MISSING, hatch=MISSING_HATCH)
        return
    fraction = decided.mean()
    ink = "white" if fraction >= WHITE_INK else "black"
    text_grid.square(ax, row, column, f"{int(decided.sum())}/{len(decided)}", colour=_colour(fraction), ink=ink)


def _colour(fraction: float) -> str:
    return to_hex(COLOURS(DARKEST * fraction))
