"""Why one mean cosine misleads: accuracy against it, and what it is the mean of, block by block."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fa_audit.core.thresholds import DiagnosticThresholds, fires
from fa_audit.results.figures import lines, style
from fa_audit.results.statistics import by_run, rank_runs
from fa_audit.results.tidy import KEY, Tidy

HEIGHT = 2.9  # inches without the legend
EPSILON = 1e-8  # by which torch.nn.functional.cosine_similarity bounds norms from below
HOLLOW = lines.SEED | {"markerfacecolor": "white", "label": "reference below its limit"}


@style.styled
def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw accuracy against the mean cosine over blocks, the cosine of every block, and the norm of every gradient.

    Credits are compared at the blocks' outputs. A marker is one seed, hollow where the gradient that it shows or is
    compared with is below the limit of D2; in the first panel that of the last state.
    """
    runs, limit = tidy.runs, thresholds.g_norm_floor
    layers = tidy.layers.sort_values("layer", kind="stable")  # the next row is the block's output
    order = rank_runs(runs)
    runs = runs.assign(
        mean_cosine=tidy.mean_of_blocks("cosine"), hollow=fires("reference", runs["grad_norm_last"], limit)
    )
    below = pd.Series(fires("reference", layers["grad_norm"], limit), layers.index)
    above = below.groupby([layers[key] for key in KEY]).shift(-1, fill_value=False)
    layers = layers.assign(grad_norm_hollow=below, cosine_hollow=above.astype(bool))
    blocks = by_run(layers, order, "seed", "layer")
    names = lines.counted(blocks, labels, columns=["cosine", "grad_norm"], at="layer")
    handles = [*lines.run_handles(blocks, names), *lines.mark_handles(), Line2D([], [], **HOLLOW)]
    figure = style.new_figure(title, height=HEIGHT + lines.legend_height(handles))
    aggregate, cosine, gradient = figure.subplots(1, 3)
    style.log_scale(gradient)
    looks = style.run_styles(blocks)
    for run, group in by_run(runs, order, "seed").items():
        seeds = lines.xy(group, "mean_cosine", "accuracy")
        lines.points(aggregate, *seeds, looks[run], label=run, hollow=group["hollow"].to_numpy())
    aggregate.xaxis.set_major_locator(MaxNLocator(nbins=5))
    for ax, column in ((cosine, "cosine"), (gradient, "grad_norm")):
        lines.seeds_and_means(ax, blocks, "layer", column, hollow=f"{column}_hollow")
        lines.whole_numbers(ax, 7)
        ax.margins(x=0.08)
    style.limit_line(gradient, limit, "reference")
    _epsilon(gradient)
    aggregate.set(title="(a) The aggregate", xlabel="mean cosine over blocks", ylabel="test accuracy")
    cosine.set(title="(b) Every block", xlabel="block $l$", ylabel="cosine of credit and $g_{l+1}$")
    gradient.set(title="(c) Reference", xlabel="state $l$", ylabel="median $\\|g_l\\|$")
    style.percent_scale(aggregate)
    aggregate.axvline(0, **lines.NOUGHT)
    cosine.axhline(0, **lines.NOUGHT)
    lines.legend_below(figure, handles)
    return figure


def _epsilon(ax: Axes) -> None:
    """Show where the cosine of common libraries divides by its epsilon, if gradients come near it."""
    low, high = ax.get_ylim()
    if low < EPSILON < high:
        ax.axhline(EPSILON, color=style.ERROR, linewidth=0.8, linestyle=(0, (1, 1)), label="epsilon")
        note = f"$\\varepsilon$ = {style.number(EPSILON)}"
        style.margin_note(ax, note, (1, EPSILON), gap=3, fontsize=style.SMALL)
