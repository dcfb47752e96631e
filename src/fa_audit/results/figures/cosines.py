"""Figures of cosines between credits and gradients, in every block and averaged over blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fa_audit.core.errors import AuditError
from fa_audit.core.measured import AT_INPUT
from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.statistics import by_run, rank_runs, whole
from fa_audit.results.tidy import KEY, Tidy

_HOLLOW = {"reference below its limit": style.SEED | {"markerfacecolor": "white"}}
_PANELS = {  # column of the layers -> title and axes of its panel, and the check with a limit there
    "growth": ("Growth", "block $l$", "growth of $\\|h\\|$ in block $l$", "scale"),
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
    state and fires in the shaded part. A marker is one seed, a line the mean over n seeds (n is a
    range if some seeds are missing). A hollow marker means that the gradient's norm is below the
    limit of D2; in (a) this is the gradient at the last state.
    """
    figure = style.new_figure(title, height=2.6)
    aggregate, *panels = figure.subplots(1, 3)
    columns = ["cosine", "grad_norm"]
    groups = _by_layer(panels, tidy, columns, "bc", thresholds)
    last = CHECKS["reference"].fires(tidy.runs["grad_norm_last"], thresholds.g_norm_floor)
    runs = tidy.runs.assign(mean_cosine=tidy.mean_of_blocks("cosine"), hollow=last)
    looks = style.run_styles(groups)
    for run, rows in by_run(runs, list(groups), "seed").items():
        x, y = "mean_cosine", "accuracy"
        style.points(aggregate, rows, x, y, looks[run], label=run, hollow="hollow")
    aggregate.set_title("(a) The aggregate")
    aggregate.set(xlabel="mean cosine over blocks", ylabel="test accuracy")
    aggregate.xaxis.set_major_locator(MaxNLocator(nbins=5))
    aggregate.axvline(0, **style.NOUGHT)
    style.percent_scale(aggregate)
    entries = style.mean_entries(groups, labels, columns, "layer")
    style.legend_below(figure, entries | _HOLLOW)
    return figure


@style.styled
def layers(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Growth, gradient and cosine along the depth, for every run; a line is the mean over n seeds.
    (a) Growth of the median state norm in every block; D1 fires above the dashed limit. (b) Median
    norm of the batch-mean loss's gradient at every state; D2 looks at the last state and fires
    below the dashed limit. (c) Mean cosine between each block's credit and the gradient at its
    output, if the audit has credits; a hollow marker means that this gradient is below the limit of
    D2.
    """
    columns = [name for name in _PANELS if name in tidy.layers and tidy.layers[name].notna().any()]
    columns = columns or ["growth"]  # an empty panel, if no state has finite numbers
    figure = style.new_figure(title, height=2.4)
    panels = figure.subplots(1, len(columns), squeeze=False)[0]
    groups = _by_layer(panels, tidy, columns, "abc", thresholds)
    entries = style.mean_entries(groups, labels, columns, "layer")
    style.legend_below(figure, entries | _HOLLOW)
    return figure


def _by_layer(
    panels: Iterable[Axes],
    tidy: Tidy,
    columns: Sequence[str],
    letters: str,
    thresholds: DiagnosticThresholds,
) -> dict[str, pd.DataFrame]:
    """Draw `columns` of the table of layers, one in each panel; return every run's rows."""
    table = tidy.layers.sort_values("layer", kind="stable")
    # A gradient norm's marker is hollow if the norm is below the limit of D2. A cosine compares the
    # credit with the gradient at the block's output; the cosine's marker is hollow if the norm of
    # that gradient is below the limit.
    below = CHECKS["reference"].fires(table["grad_norm"], thresholds.g_norm_floor)
    # A block's output is the state of the next row.
    output = below.groupby([table[key] for key in KEY]).shift(-1, fill_value=False).astype(bool)
    table = table.assign(grad_norm_hollow=below, cosine_hollow=output, growth_hollow=False)
    groups = by_run(table, rank_runs(tidy.runs), "seed", "layer")
    for ax, column, letter in zip(panels, columns, letters):
        name, x, y, check = _PANELS[column]
        if check:
            style.log_scale(ax)
        style.seeds_and_means(ax, groups, "layer", column, hollow=f"{column}_hollow")
        style.whole_numbers(ax, 7)
        ax.margins(x=0.08)
        ax.set(title=f"({letter}) {name}", xlabel=x, ylabel=y)
        if check:
            style.limit_line(ax, check, thresholds)
        else:
            ax.axhline(0, **style.NOUGHT)
    return groups


# --- the first block, and the later ones

_COSINE = f"cosine{AT_INPUT}"  # as published
_PARTS: dict[str, tuple[str, style.Look]] = {  # part of the blocks -> its name and its mark
    "first": ("block 0, which reads the embedding", {"markersize": 5}),
    "all": ("all blocks: the published mean", {"marker": "|", "markersize": 9}),
    "deep": ("blocks $l \\geq 1$", {"markersize": 5, "markerfacecolor": "white"}),
}
_DOT: style.Look = {"marker": ".", "markersize": 3, "alpha": 0.6}


@style.styled
def layer0_dominance(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """How much block 0 contributes to a mean cosine. Filled: the cosine of credit and gradient in
    block 0, which reads the embedding. Hollow: the mean over the later blocks. Bar: the mean over
    all blocks, which is usually reported. If the filled mark lies far to the right of the hollow
    one, block 0 carries the mean. Large marks are means over seeds, dots are seeds. Networks are
    sorted by mean accuracy, best first; above a fully trained network are its snapshots, sorted by
    epoch.

    Raises:
        AuditError: no network has credits both in block 0 and in a later block.
    """
    cosines = tidy.layers.set_index([*KEY, "layer"])[_COSINE].unstack("layer")
    deep = cosines.drop(columns=0).mean(axis=1)
    means = pd.DataFrame({"first": cosines[0], "deep": deep, "all": cosines.mean(axis=1)})
    parts = means.dropna().reset_index()
    if parts.empty:
        problem = "found no run with cosines both in block 0 and in a later block"
        raise AuditError(f"layer0_dominance: {problem}; expected at least two blocks.")
    best = rank_runs(tidy.runs.assign(run=tidy.runs["run"].map(whole)))

    def place(run: str) -> tuple[int, float]:
        return best.index(whole(run)), parse_run(run).until

    groups = by_run(parts, sorted(set(parts["run"]), key=place), "seed")
    names = [style.wrap(labels.get(run, run)) for run in groups]
    figure = style.new_figure(title, height=style.rows_height(names) + 0.7)
    ax = figure.subplots()
    looks = style.run_styles(groups)
    for row, (run, seeds) in enumerate(groups.items()):
        mark = style.MARK | {"color": looks[run]["color"], "marker": looks[run]["marker"]}
        ax.plot(seeds[["first", "deep"]].mean(), [row, row], color="0.8", linewidth=2, zorder=0)
        for part, (_, look) in _PARTS.items():
            ax.plot(seeds[part], [row] * len(seeds), **mark | _DOT, label=f"{run}: {part}, seeds")
            ax.plot(seeds[part].mean(), row, **mark | look, label=f"{run}: {part}")
    ax.axvline(0, **style.NOUGHT)
    ax.set_xlabel("cosine of credit and $g_l$, at the block's input")
    style.name_rows(ax, names)
    entries = {name: style.MARK | look for name, look in _PARTS.values()}
    style.legend_below(figure, entries | {"one seed": style.MARK | _DOT})
    return figure
