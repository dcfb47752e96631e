"""Functional triangulation: do cosine, perturbation correlation, nudging and training loss rank the
runs alike?
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures import style, text_grid
from fa_audit.results.tidy import Tidy, side_of

ROW, SURROUNDINGS = 0.11, 1.1  # inches: a place beside its lines of text; title and headings
LABEL_WIDTH = 16  # characters of a run's label in one line
SIDE, MARGIN = (
    0.37,
    0.44,
)  # in distances of two measures: room for a rank and its value; room at both edges
MEASURES = {  # what a run's credit is worth -> as it is printed, with the unit
    "deep_cosine": "cosine\nhigh is better",
    "deep_rho": "$\\rho$\nhigh is better",
    "deep_nudging": "nudging\nin nats\nlow is better",
    "loss_decrease": "loss decrease\nin nats\nhigh is better",
}
CREDITS = ("deep_cosine", "deep_rho", "deep_nudging")
LOW_IS_BETTER = ("deep_nudging",)


@style.styled
def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw the rank of every run under each measure, with the mean over seeds that it follows from.

    A run without a value has no rank there: it stands below the ranked ones, marked n/a, and its
    line is interrupted.
    """
    side = side_of(tidy.runs, *CREDITS)
    ranking = rank(seed_values(tidy, side))
    names = {
        run: text_grid.wrap(labels.get(run, run), LABEL_WIDTH) for run in ranking["run"].unique()
    }
    printed = [*names.values(), *map(_text, ranking.itertuples())]
    row = ROW + text_grid.LINE * max(text.count("\n") + 1 for text in printed)
    styles = style.run_styles(names)
    figure = style.new_figure(title, height=row * len(names) + SURROUNDINGS)
    ax = figure.subplots()
    _frame(ax, ranking, names)
    where = f"credits at the blocks' {'inputs' if side else 'outputs'}"
    figure.supxlabel(
        f"rank (mean over seeds); 1 is best, = shared; {where}",
        fontsize=style.SMALL,
        color=style.GREY,
    )
    for run in names:
        ranked = ranking[ranking["run"] == run].set_index("measure").loc[list(MEASURES)]
        _line(ax, ranked, styles[run], label=run)
    return figure


def seed_values(tidy: Tidy, side: str = "") -> pd.DataFrame:
    """Return every measure, a row per run and seed: ``run, seed`` and `MEASURES`; NaN where there
    is none.

    Cosine, rho and nudging (nats) are averages over the blocks l >= 1 of the trained network. The
    loss decrease (nats) is the mean training loss of the first epoch minus that of the last; a run
    of one epoch has none.

    Args:
        side: of the blocks at which credits are compared, as `side_of` names it.
    """
    epochs = tidy.followed().drop_duplicates(["run", "seed", "epoch"]).sort_values("epoch")
    losses = epochs.groupby(["run", "seed"])["train_loss"].agg(["first", "last", "size"])
    decrease = (losses["first"] - losses["last"]).where(losses["size"] > 1).rename("loss_decrease")
    runs = tidy.runs.assign(**{name: tidy.runs[f"{name}{side}"] for name in CREDITS})
    return runs.merge(decrease, "left", on=["run", "seed"])[["run", "seed", *MEASURES]]


def rank(values: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of a setting under every measure, a row per run and measure.

    Columns: ``run, measure``; the ``mean`` over the ``measured`` seeds ``of`` all; ``rank`` (1 is
        best, equal means
    share the better rank, NaN without a value) and whether it is ``tied``; ``place``, the row in
    which the run is drawn, from 0: those without a rank last, equal ones as under the measure
    before, or by name.
    """
    columns, order = [], sorted(set(values["run"]))
    for measure in MEASURES:
        found = (
            values.groupby("run")[measure]
            .agg(mean="mean", measured="count", of="size")
            .loc[order]
            .reset_index()
        )
        ranks = found["mean"].rank(method="min", ascending=measure in LOW_IS_BETTER)
        found = found.assign(
            measure=measure, rank=ranks, tied=ranks.duplicated(keep=False) & ranks.notna()
        )
        found = found.sort_values("rank", kind="stable").assign(place=range(len(found)))
        columns.append(found)
        order = found["run"].tolist()
    return pd.concat(columns, ignore_index=True)


def _frame(ax: Axes, ranking: pd.DataFrame, names: Mapping[str, str]) -> None:
    """Name measures above, runs on both sides in the order of the first and of the last measure."""
    text_grid.name_columns(ax, list(MEASURES.values()))
    ax.set(xlim=(-MARGIN, len(MEASURES) - 1 + MARGIN), ylim=(len(names) - 0.5, -0.5))
    ax.tick_params(axis="y", length=0)
    right = ax.secondary_yaxis("right")
    right.tick_params(length=0)
    right.spines[:].set_visible(False)
    first, *_, last = MEASURES
    for side, measure in ((ax, first), (right, last)):
        column = ranking[ranking["measure"] == measure].sort_values("place")
        side.set_yticks(range(len(names)), column["run"].map(names), va="center")


def _line(ax: Axes, ranked: pd.DataFrame, look: style.RunStyle, *, label: str) -> None:
    """Draw one run from measure to measure; `ranked` has a row per measure, in their order."""
    places = ranked["place"].where(ranked["rank"].notna()).to_numpy(float)
    ends = [places[0], *places, places[-1]]  # a mark of its own beside each name
    for x in range(-1, len(places)):
        left, right = max(x + SIDE, -SIDE), min(x + 1 - SIDE, len(places) - 1 + SIDE)
        ax.plot(
            [left, right],
            ends[x + 1 : x + 3],
            label=label,
            markersize=4,
            linewidth=1.1,
            **look.options,
        )
    for x, entry in enumerate(ranked.itertuples()):
        ax.text(x, entry.place, _text(entry), ha="center", va="center", fontsize=style.SMALL)


def _text(entry: Any) -> str:
    """Return rank, and below it the value in parentheses, and how many of the seeds have one where
    some have none.
    """
    if math.isnan(entry.rank):
        return "n/a"
    mark = "=" if entry.tied else ""
    missing = f"\n{entry.measured}/{entry.of} seeds" if entry.measured < entry.of else ""
    return f"{entry.rank:.0f}{mark}\n({style.number(entry.mean, digits=2)}){missing}"
