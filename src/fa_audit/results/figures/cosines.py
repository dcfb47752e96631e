"""Figures of cosines between credits and gradients, of every layer and over all of them."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fa_audit.core.errors import AuditError
from fa_audit.core.measured import AT_INPUT
from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.statistics import by_run, rank_runs, whole
from fa_audit.results.tidy import KEY, Tidy

COSINE = f"cosine{AT_INPUT}"  # as published
HOLLOW = style.SEED | {"markerfacecolor": "white", "label": "reference below its limit"}
PANELS = {  # column of the layers -> title and axes of its panel, and its limit
    "growth": ("Growth", "block $l$", "growth of $\\|h\\|$ in block $l$", "growth"),
    "grad_norm": ("Reference", "state $l$", "median $\\|g_l\\|$", "reference"),
    "cosine": ("Every block", "block $l$", "cosine of credit and $g_{l+1}$", ""),
}


@style.styled
def credit_layers(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Why a mean cosine misleads. (a) Accuracy on the whole test set against the cosine between
    credit and gradient, averaged over all blocks. (b) The cosine of every block, at the block's
    output. (c) Median norm of the batch-mean loss's gradient at every state; D2 looks at the last
    state and fires in the shaded part. A marker is one seed, a line the mean over n seeds (a range
    of n if some are missing). A hollow marker means that the gradient is below the limit of D2; in
    (a) the gradient at the last state.
    """
    order = rank_runs(tidy.runs)
    last = CHECKS["reference"].fires(tidy.runs["grad_norm_last"], thresholds.g_norm_floor)
    runs = tidy.runs.assign(mean_cosine=tidy.mean_of_blocks("cosine"), hollow=last)
    blocks = by_run(_hollow(tidy.layers, thresholds.g_norm_floor), order, "seed", "layer")
    figure = style.new_figure(title, height=2.6)
    aggregate, cosine, gradient = figure.subplots(1, 3)
    looks = style.run_styles(blocks)
    for run, group in by_run(runs, order, "seed").items():
        seeds = style.numbers(group, "mean_cosine", "accuracy")
        style.points(aggregate, *seeds, looks[run], label=run, hollow=group["hollow"].to_numpy())
    aggregate.xaxis.set_major_locator(MaxNLocator(nbins=5))
    aggregate.set(
        title="(a) The aggregate", xlabel="mean cosine over blocks", ylabel="test accuracy"
    )
    aggregate.axvline(0, **style.NOUGHT)
    style.percent_scale(aggregate)
    _by_layer(cosine, blocks, "cosine", "b", thresholds)
    _by_layer(gradient, blocks, "grad_norm", "c", thresholds)
    names = style.counted(blocks, labels, ["cosine", "grad_norm"], "layer")
    _legend(figure, style.run_handles(blocks, names))
    return figure


@style.styled
def layers(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Growth, gradient and cosine along the depth, for every run; a line is the mean over seeds.
    (a) Growth of the median state norm in every block; D1 fires above the dashed limit. (b) Median
    norm of the batch-mean loss's gradient at every state; D2 looks at the last state and fires
    below the dashed limit. (c) Mean cosine between each block's credit and the gradient at its
    output, if the audit has credits; a hollow marker means that this gradient is below the limit of
    D2.
    """
    table = _hollow(tidy.layers, thresholds.g_norm_floor)
    groups = by_run(table, rank_runs(tidy.runs), "seed", "layer")
    shown = [name for name in PANELS if name in table and table[name].notna().any()]
    figure = style.new_figure(title, height=2.4)
    for ax, column, letter in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, "abc"):
        _by_layer(ax, groups, column, letter, thresholds)
    _legend(figure, style.run_handles(groups, labels))
    return figure


def _legend(figure: Figure, runs: list[Line2D]) -> None:
    style.legend_below(figure, [*runs, *style.mark_handles(), Line2D([], [], **HOLLOW)])


def _hollow(layers: pd.DataFrame, limit: float) -> pd.DataFrame:
    """Add columns that say which markers are hollow: those whose gradient is below the limit."""
    layers = layers.sort_values("layer", kind="stable")
    below = pd.Series(CHECKS["reference"].fires(layers["grad_norm"], limit), layers.index)
    # A block's output is the state of the next row.
    output = below.groupby([layers[key] for key in KEY]).shift(-1, fill_value=False).astype(bool)
    return layers.assign(grad_norm_hollow=below, cosine_hollow=output, growth_hollow=False)


def _by_layer(
    ax: Axes,
    groups: Mapping[str, pd.DataFrame],
    column: str,
    letter: str,
    thresholds: DiagnosticThresholds,
) -> None:
    name, x, y, limit = PANELS[column]
    if limit:
        style.log_scale(ax)
    style.seeds_and_means(ax, groups, "layer", column, hollow=f"{column}_hollow")
    style.whole_numbers(ax, 7)
    ax.margins(x=0.08)
    ax.set(title=f"({letter}) {name}", xlabel=x, ylabel=y)
    if limit:
        style.limit_line(ax, thresholds.limits[limit], limit)
    else:
        ax.axhline(0, **style.NOUGHT)


# --- the first block, and those behind it

PARTS = {  # part of the blocks -> its mark
    "first": {"label": "block 0, which reads the embedding"},
    "all": {"marker": "|", "markersize": 9, "label": "all blocks: the published mean"},
    "deep": {"markerfacecolor": "white", "label": "blocks $l \\geq 1$"},
}
DOT = {"marker": ".", "markersize": 3, "alpha": 0.6, "label": "one seed"}


@style.styled
def layer0_dominance(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """How much block 0 contributes to a mean cosine. Filled: the cosine of credit and gradient in
    block 0, which reads the embedding. Hollow: the mean over the later blocks. Bar: the mean over
    all blocks, which is usually reported. If the filled mark lies far to the right of the hollow
    one, block 0 carries the mean. Large marks are means over seeds, dots are seeds. Rows are sorted
    by accuracy of the fully trained network, and its snapshots by epoch.

    Raises:
        AuditError: no network has a credit in block 0 and in one behind it.
    """
    parts = shares(tidy.layers)
    best = rank_runs(tidy.runs.assign(run=tidy.runs["run"].map(whole)))

    def place(run: str) -> tuple[int, float]:
        return best.index(whole(run)), parse_run(run).until

    groups = by_run(parts, sorted(set(parts["run"]), key=place), "seed")
    names = [style.wrap(labels.get(run, run)) for run in groups]
    figure = style.new_figure(title, height=style.rows_height(names) + 0.7)
    ax = figure.subplots()
    looks = style.run_styles(groups)
    for row, (run, cosines) in enumerate(groups.items()):
        mark = style.MARK | {
            "color": looks[run].colour,
            "marker": looks[run].marker,
            "markersize": 5,
        }
        ax.plot(cosines[["first", "deep"]].mean(), [row, row], color="0.8", linewidth=2, zorder=0)
        for part, own in PARTS.items():
            seeds = DOT | {"label": f"{run}: {part}, seeds"}
            ax.plot(cosines[part], [row] * len(cosines), **mark | seeds)
            ax.plot(cosines[part].mean(), row, **mark | own | {"label": f"{run}: {part}"})
    ax.axvline(0, **style.NOUGHT)
    ax.set_xlabel("cosine of credit and $g_l$, at the block's input")
    style.name_rows(ax, names)
    handles = [Line2D([], [], **style.MARK | part) for part in (*PARTS.values(), DOT)]
    style.legend_below(figure, handles)
    return figure


def shares(layers: pd.DataFrame) -> pd.DataFrame:
    """Return every run's and seed's cosine of block 0, of the later blocks (``deep``) and of all
    blocks.

    Raises:
        AuditError: no network has cosines of block 0 and of a later block.
    """
    known = layers.dropna(subset=[COSINE])
    parts = {"first": known[known["layer"] == 0], "deep": known[known["layer"] > 0], "all": known}
    means = {part: rows.groupby(list(KEY))[COSINE].mean() for part, rows in parts.items()}
    found = pd.DataFrame(means).dropna().reset_index()
    if found.empty:
        problem = "found no cosines of block 0 and of later ones; expected two blocks or more."
        raise AuditError(f"layer0_dominance: {problem}")
    return found
