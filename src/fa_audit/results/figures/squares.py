"""Grids of squares, each with a text: a run's verdict, its withdrawn claims, or its rank."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fa_audit.core.measured import AT_INPUT
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.protocol.judge import FOUR, THREE
from fa_audit.results.figures import style
from fa_audit.results.outcomes import firing, withdrawals
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy, judged

_TINY = 6  # points
OUTCOMES = {  # outcome -> colour, and its meaning in the legend
    "FAIL": ("#F0B9A0", "three-check: FAIL"),
    "walk-back": ("#FBE3B5", "four-check only: walk-back"),
    "incomplete": ("#E4E4E4", "not everything evaluated"),
    "pass": ("#CFE5F3", "passes both"),
}
_MISSING = "#F4F4F4"


class Outcome(NamedTuple):
    """The outcome of a run over its seeds, as a square shows it.

    Attributes:
        name: one of `OUTCOMES`.
        checks: labels of the checks that fire or are borderline; borderline ones end in ``?``.
    """

    name: str
    checks: str


def outcome_of(seeds: pd.DataFrame) -> Outcome:
    """Judge a run from its rows of the runs table, one for each seed."""
    found = judged(seeds)
    fails, against = found.against(THREE), found.against(FOUR)
    checks = firing(found)
    if not found.finite:
        checks.append("\N{INFINITY}")
    if fails:
        name = "FAIL"
    elif against:
        name = "walk-back"
    elif None in (fails, against):
        name = "incomplete"
    else:
        name = "pass"
    return Outcome(name, ", ".join(checks))


@style.styled
def verdict_matrix(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Verdicts over n seeds of every run (rows, best mean accuracy first) in every setting
    (columns); a run that was not made has no square. FAIL: the three-check verdict is against the
    run; walk-back: only the four-check verdict is. Below the verdict are the checks that fire or
    are borderline, by the mean over seeds: D1 growth, D2 reference (the gradient's norm), C
    stability, D3 depth. Infinity sign: a state, gradient or logit is not finite. Question mark: a
    95 % interval contains the limit.
    """
    order, cells = rank_runs(tidy.runs), {}
    for (setting, run), seeds in tidy.runs.groupby(["setting", "run"]):
        found = outcome_of(seeds)
        text = "\n".join(filter(None, [found.name, found.checks, f"n = {len(seeds)}"]))
        place = order.index(run), tidy.settings.index(setting)
        cells[place] = text, OUTCOMES[found.name][0]
    headings = [labels.get(setting, setting) for setting in tidy.settings]
    figure = _squares(title, order, labels, headings, cells)
    entries = {}
    for name, (colour, text) in OUTCOMES.items():
        entries[f"{name}: {text}"] = style.AREA | {"color": colour}
    style.legend_below(figure, entries)
    return figure


# Kinds of report. Each tells a reader for which networks to withdraw ("walk back") the claims.
# Papers of the field usually report as the first two do (Hao, Wan, Zhai 2026).
_STRATEGIES = {
    "accuracy": "accuracy only",
    "cosine": "+ cosine",
    "shallow": "+ shallow baseline",
    **{CHECKS[name].label: f"+ {CHECKS[name].label} {CHECKS[name].short}" for name in FOUR.checks},
    "full": "full protocol",
}


@style.styled
def decision_utility(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Claims that would be withdrawn, one claim for each trained network; a column is a kind of
    report. A cell has the number of claims withdrawn / the number of networks for which the report
    has what it needs, over all seeds and settings; the larger this fraction, the darker the cell.
    "n/a": the report never has what it needs. "Accuracy only" withdraws nothing, because it
    compares with nothing. A claim is withdrawn under "+ cosine" if the cosine between credit and
    gradient, averaged over all blocks, is not above 0; under "+ shallow baseline" if the accuracy
    is not above that of the same network without blocks, trained by backpropagation; under "+ D1"
    to "+ D3" if the check fires; under "full protocol" if the four-check verdict is "needs
    walk-back". Incomplete verdicts are not counted. Rows are sorted by mean accuracy, best first.
    """
    withdrawn = withdrawals(tidy)
    order, cells = rank_runs(tidy.runs), {}
    for row, run in enumerate(order):
        for column, strategy in enumerate(_STRATEGIES):
            decided = withdrawn.loc[tidy.runs["run"] == run, strategy].dropna()
            count = f"{decided.sum():.0f}/{len(decided)}" if len(decided) else "n/a"
            cells[row, column] = count, _shade(decided.mean())
    return _squares(title, order, labels, _STRATEGIES.values(), cells)


_NUDGING = f"deep_nudging{AT_INPUT}"
_MEASURES = {  # column of `_seed_values` -> its heading, with the unit
    f"deep_cosine{AT_INPUT}": "cosine, high is better",
    f"deep_rho{AT_INPUT}": "$\\rho$, high is better",
    _NUDGING: "nudging in nats, low is better",
    "loss_decrease": "loss decrease in nats, high is better",
}


@style.styled
def triangulation(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Do four measures of a credit rank the runs alike? A square has the rank (1 is best and
    darkest) and in parentheses the mean over seeds. "2/3 seeds": only two of three seeds have a
    value; "n/a": none has. Cosine of credit and gradient, perturbation correlation, and nudging
    (change of the loss after a small step against the credit) are means over the blocks l >= 1 of
    the trained network. The loss decrease is the mean training loss of the first epoch minus that
    of the last. Rows are sorted by the first measure.
    """
    measures = list(_MEASURES)
    runs = _seed_values(tidy).groupby("run")
    means, counts, seeds = runs[measures].mean(), runs[measures].count(), runs.size()
    ranks = means.assign(**{_NUDGING: -means[_NUDGING]}).rank(method="min", ascending=False)
    order = ranks.sort_values(measures, kind="stable").index.tolist()
    cells = {}
    for row, run in enumerate(order):
        for column, measure in enumerate(measures):
            rank, mean = ranks.loc[run, measure], means.loc[run, measure]
            if math.isnan(rank):
                cells[row, column] = "n/a", _MISSING
                continue
            text = f"{rank:.0f}\n({style.number(mean, digits=2)})"
            measured = counts.loc[run, measure]
            if measured < seeds[run]:
                text += f"\n{measured}/{seeds[run]} seeds"
            cells[row, column] = text, _shade(1 - rank / len(order))
    return _squares(title, order, labels, _MEASURES.values(), cells)


def _seed_values(tidy: Tidy) -> pd.DataFrame:
    """Return the table of runs with all `_MEASURES`; NaN for a missing one.

    A run of one epoch has no loss decrease.
    """
    epochs = tidy.followed().drop_duplicates(["run", "seed", "epoch"]).sort_values("epoch")
    losses = epochs.groupby(["run", "seed"])["train_loss"].agg(["first", "last", "size"])
    decrease = (losses["first"] - losses["last"]).where(losses["size"] > 1).rename("loss_decrease")
    return tidy.runs.merge(decrease, "left", on=["run", "seed"])


# --- squares


def _squares(
    title: str,
    runs: Sequence[str],
    labels: Mapping[str, str],
    headings: Iterable[str],
    cells: Mapping[tuple[int, int], tuple[str, Any]],
) -> Figure:
    """Return a figure of squares: runs on the left, headings above.

    Args:
        cells: row and column of a square -> its text and its colour.
    """
    names = [style.wrap(labels.get(run, run)) for run in runs]
    columns = [style.wrap(heading, 11) for heading in headings]
    lines = max(text.count("\n") for text, _ in cells.values()) + 1
    figure = style.new_figure(title, height=style.rows_height(names, lines) + 0.7)
    ax = figure.subplots()
    style.name_rows(ax, names)
    ax.set_xlim(-0.5, len(columns) - 0.5)
    ax.set_xticks(range(len(columns)), columns, fontsize=_TINY)
    ax.tick_params(axis="x", length=0, labeltop=True, labelbottom=False)
    ax.spines[:].set_visible(False)
    for (row, column), (text, colour) in cells.items():
        corner = column - 0.5, row - 0.5
        ax.add_patch(Rectangle(corner, 1, 1, facecolor=colour, edgecolor="white", linewidth=1.5))
        ax.text(column, row, text, ha="center", va="center", fontsize=_TINY)
    return figure


def _shade(fraction: float) -> Any:
    """Return a blue on which black can be read, the darker the larger the fraction."""
    return _MISSING if math.isnan(fraction) else colormaps["Blues"](0.55 * fraction)
