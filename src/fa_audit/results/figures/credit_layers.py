"""Why one mean cosine misleads: accuracy against it, and what it is the mean of, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fa_audit.core.thresholds import DiagnosticThresholds, fires
from fa_audit.results.figures import lines, style
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy

HEIGHT = 2.9  # inches without the legend
SPREAD = 0.4  # of the distance between two layers, over which the runs stand side by side
COLLAPSED = "reference below its limit"


def draw(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds | None = None
) -> Figure:
    """Draw accuracy against the mean cosine over blocks, the cosine of every block, and the norm of every gradient.

    A marker is one seed, hollow where the gradient that its cosine refers to is below the limit of D2: at the last
    state in the first panel, at the marker's own state in the others.
    """
    limits, order = thresholds or DiagnosticThresholds(), rank_runs(tidy.runs)
    layers = tidy.layers.sort_values(["run", "seed", "layer"])
    runs = tidy.runs.assign(mean_cosine=tidy.mean_cosine())
    handles = [*lines.run_handles(_names(layers, order, labels)), *lines.mark_handles(), _hollow()]
    with style.context():
        figure = style.new_figure(title, height=HEIGHT + lines.legend_height(handles))
        aggregate, cosine, gradient = figure.subplots(1, 3)
        style.log_scale(gradient)
        _aggregate(aggregate, runs, order, limits.reference)
        _per_layer(cosine, layers, "cosine", order, limits.reference)
        _per_layer(gradient, layers, "grad_norm", order, limits.reference)
        style.limit_line(gradient, limits.reference, fires="below")
        aggregate.set(title="(a) The aggregate", xlabel="mean cosine over blocks", ylabel="test accuracy")
        cosine.set(title="(b) Credit of every block", xlabel="block $l$", ylabel="cosine of credit and $g_l$")
        gradient.set(title="(c) Reference gradient", xlabel="state $l$", ylabel="median $\\|g_l\\|$")
        style.percent_scale(aggregate)
        aggregate.axvline(0, **lines.NOUGHT)
        cosine.axhline(0, **lines.NOUGHT)
        lines.legend_below(figure, handles)
        return style.freeze_layout(figure)


def _names(layers: pd.DataFrame, order: Sequence[str], labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels with the number of seeds behind the means of both panels."""
    groups = {run: layers[layers["run"] == run] for run in order}
    return {
        run: lines.with_counts(labels.get(run, run), group[["cosine", "grad_norm"]], group["layer"])
        for run, group in groups.items()
    }


def _aggregate(ax: Axes, runs: pd.DataFrame, order: Sequence[str], limit: float) -> None:
    """Draw one point per run and seed."""
    looks = style.run_styles(order)
    for run in order:
        group = runs[runs["run"] == run].sort_values("seed")
        collapsed = fires("reference", group["grad_norm_last"], limit).to_numpy()
        x, values = group["mean_cosine"].to_numpy(float), group["accuracy"].to_numpy(float)
        lines.points(ax, x, values, looks[run], label=run, hollow=collapsed)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5))


def _per_layer(ax: Axes, layers: pd.DataFrame, column: str, order: Sequence[str], limit: float) -> None:
    """Draw one marker per run, seed and layer, and a line through the means of every run."""
    looks, shifts = style.run_styles(order), lines.dodge(order, SPREAD)
    for run in reversed(order):  # the best run on top
        group = layers[layers["run"] == run]
        x, values = group["layer"].to_numpy(float), group[column].to_numpy(float)
        collapsed = fires("reference", group["grad_norm"], limit).to_numpy()
        lines.seeds_and_mean(ax, x, values, looks[run], label=run, shift=shifts[run], hollow=collapsed)
    lines.whole_numbers(ax, 7)


def _hollow() -> Line2D:
    return Line2D([], [], **lines.SEED | {"markerfacecolor": "white"}, label=COLLAPSED)
