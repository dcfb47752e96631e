"""Grids of squares with a text in each: verdicts, withdrawals and ranks of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from fa_audit.core.measured import AT_INPUT
from fa_audit.protocol.checks import CHECKS, four_checks
from fa_audit.protocol.judge import FOUR, THREE
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.outcomes import withdrawals
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy, judged

TINY = 6  # points
COLUMN = 11  # characters in a line of a column's heading
OUTCOMES = {  # colour, and its meaning
    "FAIL": ("#F0B9A0", "three-check: FAIL"),
    "walk-back": ("#FBE3B5", "four-check alone: walk-back"),
    "incomplete": ("#E4E4E4", "not everything evaluated"),
    "pass": ("#CFE5F3", "passes both"),
}
MISSING = "#F4F4F4"


class Outcome(NamedTuple):
    """The outcome of a run over its seeds, as a square shows it.

    Attributes:
        name: one of `OUTCOMES`.
        checks: labels of the checks that fire; ``?`` marks borderline ones.
    """

    name: str
    checks: str


def outcome_of(seeds: pd.DataFrame) -> Outcome:
    """Judge a run from its rows of the runs table, one for each seed."""
    found = judged(seeds)
    fails, against = found.against(THREE), found.against(FOUR)
    checks = []
    for label, name in four_checks().items():
        if found[name].fires or found[name].borderline:
            checks.append(label + "?" * found[name].borderline)
    if not found.finite:
        checks.append("\N{INFINITY}")
    if fails:
        name = "FAIL"
    elif against:
        name = "walk-back"
    elif fails is None or against is None:
        name = "incomplete"
    else:
        name = "pass"
    return Outcome(name, ", ".join(checks))


@style.styled
def verdict_matrix(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Verdicts over n seeds of every run (rows, best mean accuracy first) in every setting
    (columns); a run that was not made has no square. FAIL is a verdict of three checks, walk-back
    of the four checks only. Below it are the checks that fire, by the mean over seeds: D1 growth of
    states, D2 reference gradient, C cross-batch stability, D3 depth utility. The infinity sign
    means a state, gradient or logit that is not finite, a question mark a 95 % interval that
    contains the limit.
    """
    order = rank_runs(tidy.runs)
    headings = [labels.get(setting, setting) for setting in tidy.settings]
    figure, ax = _grid(title, order, labels, headings, lines=3)
    for (setting, run), seeds in tidy.runs.groupby(["setting", "run"]):
        found = outcome_of(seeds)
        text = "\n".join(filter(None, [found.name, found.checks, f"n = {len(seeds)}"]))
        place = order.index(run), tidy.settings.index(setting)
        _square(ax, place, text, OUTCOMES[found.name][0])
    handles = [
        Patch(color=colour, label=f"{name}: {text}") for name, (colour, text) in OUTCOMES.items()
    ]
    style.legend_below(figure, handles)
    return figure


# A strategy is a rule by which a reader withdraws ("walks back") a trained network. The first two
# are the field's usual reports (Hao, Wan, Zhai 2026).
STRATEGIES = {
    "accuracy": "accuracy only",
    "cosine": "+ cosine",
    "shallow": "+ shallow baseline",
    **{letter: f"+ {letter} {CHECKS[check].short}" for letter, check in four_checks().items()},
    "full": "full protocol",
}


@style.styled
def decision_utility(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Claims that a reader of each kind of report would withdraw. A cell has the number of networks
    withdrawn / the number for which the report has what it needs, over all seeds and settings;
    darker is more, "n/a" means none. "Accuracy only" withdraws nothing, because nothing is there to
    compare with. "+ cosine" withdraws a network if the cosine between credit and gradient, averaged
    over all blocks, is not above 0. "+ shallow baseline": if the accuracy is not above that of the
    same network
    without blocks, trained by backpropagation. "+ D1" to "+ D3": if this check fires. "Full
    protocol": if the four-check verdict is "needs walk-back"; incomplete verdicts are not counted.
    Rows are sorted by mean accuracy, best first.
    """
    withdrawn = withdrawals(tidy)
    order = rank_runs(tidy.runs)
    figure, ax = _grid(title, order, labels, STRATEGIES.values())
    for row, run in enumerate(order):
        for column, strategy in enumerate(STRATEGIES):
            decided = withdrawn.loc[tidy.runs["run"] == run, strategy].dropna()
            count = f"{decided.sum():.0f}/{len(decided)}" if len(decided) else "n/a"
            _square(ax, (row, column), count, _shade(decided.mean()))
    return figure


MEASURES = {  # what a run's credit is worth -> as it is printed, with the unit
    "deep_cosine": "cosine, high is better",
    "deep_rho": "$\\rho$, high is better",
    "deep_nudging": "nudging in nats, low is better",
    "loss_decrease": "loss decrease in nats, high is better",
}
CREDITS = ("deep_cosine", "deep_rho", "deep_nudging")


@style.styled
def triangulation(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Do four measures of a credit rank the runs alike? A square has the rank (1 is best and
    darkest, = is shared) and in parentheses the mean over seeds, with their number if some have no
    value; n/a means no value. Cosine of credit and gradient, perturbation correlation, and nudging
    (change of the loss after a small step against the credit) are means over the blocks l >= 1 of
    the trained network. The loss decrease is the mean training loss of the first epoch minus that
    of the last. Rows are sorted by the first measure.
    """
    values = seed_values(tidy)
    runs = values.groupby("run")
    means, counts, seeds = runs[list(MEASURES)].mean(), runs[list(MEASURES)].count(), runs.size()
    best = means.assign(deep_nudging=-means["deep_nudging"])
    ranks = best.rank(method="min", ascending=False)
    order = ranks.sort_values(list(MEASURES), kind="stable").index.tolist()
    figure, ax = _grid(title, order, labels, MEASURES.values(), lines=3)
    for row, run in enumerate(order):
        for column, measure in enumerate(MEASURES):
            rank = ranks.loc[run, measure]
            if math.isnan(rank):
                _square(ax, (row, column), "n/a", MISSING)
                continue
            shared = "=" if (ranks[measure] == rank).sum() > 1 else ""
            text = f"{rank:.0f}{shared}\n({style.number(means.loc[run, measure], digits=2)})"
            measured = counts.loc[run, measure]
            if measured < seeds[run]:
                text += f"\n{measured}/{seeds[run]} seeds"
            _square(ax, (row, column), text, _shade(1 - rank / len(order)))
    return figure


def seed_values(tidy: Tidy) -> pd.DataFrame:
    """Return a row per run and seed with all `MEASURES`; NaN for a missing one.

    A run of one epoch has no loss decrease.
    """
    epochs = tidy.followed().drop_duplicates(["run", "seed", "epoch"]).sort_values("epoch")
    losses = epochs.groupby(["run", "seed"])["train_loss"].agg(["first", "last", "size"])
    decrease = (losses["first"] - losses["last"]).where(losses["size"] > 1).rename("loss_decrease")
    runs = tidy.runs.copy()
    for name in CREDITS:
        runs[name] = runs[f"{name}{AT_INPUT}"].astype(float)
    return runs.merge(decrease, "left", on=["run", "seed"])[["run", "seed", *MEASURES]]


# --- squares


def _grid(
    title: str,
    runs: Sequence[str],
    labels: Mapping[str, str],
    headings: Iterable[str],
    *,
    lines: int = 1,
) -> tuple[Figure, Axes]:
    """Return a figure with a panel for squares of `lines` of text: runs left, headings above."""
    names = [style.wrap(labels.get(run, run)) for run in runs]
    columns = [style.wrap(heading, COLUMN) for heading in headings]
    figure = style.new_figure(title, height=style.rows_height(names, lines) + 0.7)
    ax = figure.subplots()
    style.name_rows(ax, names)
    ax.set_xlim(-0.5, len(columns) - 0.5)
    ax.set_xticks(range(len(columns)), columns, fontsize=TINY)
    ax.tick_params(axis="x", length=0, labeltop=True, labelbottom=False)
    ax.spines[:].set_visible(False)
    return figure, ax


def _square(ax: Axes, place: tuple[int, int], text: str, colour: Any) -> None:
    """Fill the square of a row and a column, with a text in its middle."""
    row, column = place
    corner = column - 0.5, row - 0.5
    ax.add_patch(Rectangle(corner, 1, 1, facecolor=colour, edgecolor="white", linewidth=1.5))
    ax.text(column, row, text, ha="center", va="center", fontsize=TINY)


def _shade(fraction: float) -> Any:
    """Return a blue on which black can be read, the darker the larger the fraction."""
    return MISSING if math.isnan(fraction) else colormaps["Blues"](0.55 * fraction)
