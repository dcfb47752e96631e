"""Whose alignment a mean cosine is: the first block's, the mean over all blocks, and the mean over those behind it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fa_audit.core.errors import AuditError
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.experiments.paths import AT_INPUT
from fa_audit.experiments.spec import parse_run
from fa_audit.results.figures import lines, style, text_grid
from fa_audit.results.statistics import rank_runs, whole
from fa_audit.results.tidy import KEY, Tidy

ROW, SURROUNDINGS = 0.2, 1.3  # inches: a run; title, axis and legend
LEAST = 4  # rows of a figure
LABEL_WIDTH = 22  # characters of a row's label in one line
PARTS = {  # part of the blocks -> its marks
    "first": {"markersize": 5, "label": "block 0, which reads the embedding"},
    "all": {"marker": "|", "markersize": 9, "markeredgewidth": 1.3, "label": "all blocks: the published mean"},
    "deep": {"markerfacecolor": "white", "markersize": 5, "label": "blocks $l \\geq 1$"},
}
COSINE = f"cosine{AT_INPUT}"  # the published one
SEED = {"marker": ".", "markersize": 3, "markeredgewidth": 0, "alpha": 0.6, "label": "one seed"}


@style.styled
def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw for every run of a setting the cosine of block 0, of the blocks behind it, and the mean over all.

    Marks are means over seeds, dots the seeds. Rows are sorted by the accuracy of the last network, the best first; the
    snapshots of a run by epoch.

    Raises:
        AuditError: no network has a credit in block 0 and in one behind it.
    """
    parts = shares(tidy.layers)
    best = rank_runs(tidy.runs.assign(run=tidy.runs["run"].map(whole)))
    order = sorted(set(parts["run"]), key=lambda run: (best.index(whole(run)), parse_run(run).until))
    looks = style.run_styles(order)
    names = [text_grid.wrap(labels.get(run, run), LABEL_WIDTH) for run in order]
    tallest = max(1 + name.count("\n") for name in names)
    height = max(LEAST, len(order)) * max(ROW, tallest * text_grid.LINE + 0.05)
    figure = style.new_figure(title, height=height + SURROUNDINGS)
    ax = figure.subplots()
    for row, run in enumerate(order):
        _row(ax, row, parts[parts["run"] == run], looks[run], label=run)
    ax.axvline(0, **lines.NOUGHT)
    ax.set_xlabel("cosine of credit and $g_l$, at the block's input")
    text_grid.name_rows(ax, names)
    marks = {"color": style.GREY, "linestyle": "none", "marker": "o"}
    lines.legend_below(figure, [Line2D([], [], **marks | part) for part in [*PARTS.values(), SEED]])
    return figure


def _row(ax: Axes, row: int, cosines: pd.DataFrame, look: style.RunStyle, *, label: str) -> None:
    plain = style.RunStyle(look.colour, look.marker).mark | {"linestyle": "none"}
    ax.plot(cosines[["first", "deep"]].mean(), [row, row], color="0.8", linewidth=2, zorder=0)
    for part, marks in PARTS.items():
        values = cosines[part].to_numpy(float)
        ax.plot(values, np.full(len(values), row), **plain | SEED | {"label": f"{label}: {part}, seeds"})
        ax.plot([values.mean()], [row], **plain | marks | {"label": f"{label}: {part}"})


def shares(layers: pd.DataFrame) -> pd.DataFrame:
    """Return of every run and seed the cosine of block 0, ``first``; of the blocks behind it, ``deep``; of ``all``.

    Raises:
        AuditError: no network has the first and one more.
    """
    keys, known = list(KEY), layers.dropna(subset=[COSINE])
    parts = {"first": known["layer"] == 0, "deep": known["layer"] > 0, "all": known["layer"] >= 0}
    means = {part: known[chosen].groupby(keys)[COSINE].mean() for part, chosen in parts.items()}
    found = pd.DataFrame(means).dropna().reset_index()
    if found.empty:
        raise AuditError(
            "layer0_dominance: found no network with cosines of block 0 and of later ones; expected two blocks or more."
        )
    return found
