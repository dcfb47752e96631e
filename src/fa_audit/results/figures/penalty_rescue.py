"""What a residual penalty rescues: the scale of the states, the direction of the credit, the accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import lines, style
from fa_audit.results.statistics import by_run, penalty_text, rank_runs, without_penalty
from fa_audit.results.tidy import Tidy

ROW_HEIGHT, SURROUNDINGS = 1.75, 1.0  # inches: one row of panels; titles and axis labels
PANELS_PER_ROW = 5
SPREAD = 0.4  # of the distance between two penalties, over which the methods stand side by side
GROUP = 0.84  # of that distance, which the bars of one penalty fill
METRICS = {
    "deep_cosine": ("(b) Deep cosine", "mean over blocks $l \\geq 1$"),
    "deep_rho": ("(c) Perturbation correlation $\\rho$", "mean over blocks $l \\geq 1$"),
}
FROZEN = {"color": style.GREY, "linewidth": 1.6, "label": "own frozen baseline"}
PENALTY = "residual penalty $\\lambda$"


def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw last states over training at every penalty; deep credit against the penalty; accuracy and frozen baselines.

    A method's runs at several penalties have one colour and marker. The penalties, 0 among them, stand at equal
    distances. Labels are those of methods, i.e. of runs without their penalty.
    """
    runs = tidy.runs.assign(run=tidy.runs["run"].map(without_penalty))
    order, penalties = rank_runs(runs), sorted(set(runs["penalty"]))
    groups = by_run(runs.assign(place=runs["penalty"].map(penalties.index)), order, "place", "seed")
    methods = lines.counted_handles(groups, labels, columns=[*METRICS, "accuracy"], at="place")
    handles = [*methods, *lines.mark_handles(), Line2D([], [], **FROZEN)]
    rows = -(-len(penalties) // PANELS_PER_ROW)
    with style.context():
        height = SURROUNDINGS + ROW_HEIGHT * (rows + 2) + lines.legend_height(handles)
        figure = style.new_figure(title, height=height)
        grid = figure.add_gridspec(3, 1, height_ratios=[rows, 1, 1])
        columns = min(PANELS_PER_ROW, len(penalties))
        over_time = grid[0].subgridspec(rows, columns).subplots(sharex=True, sharey=True, squeeze=False)
        metrics = grid[1].subgridspec(1, len(METRICS)).subplots()
        accuracy = grid[2].subgridspec(1, 1).subplots()
        _over_time(over_time.flat, tidy, order, penalties)
        _name_axes(over_time, len(penalties))
        for ax, (column, (name, ylabel)) in zip(metrics, METRICS.items()):
            lines.seeds_and_means(ax, groups, "place", column, spread=SPREAD)
            ax.axhline(0, **lines.NOUGHT)
            ax.set(title=name, ylabel=ylabel)
        _bars(accuracy, groups)
        for ax in (*metrics, accuracy):
            ax.set_xticks(range(len(penalties)), [*map(penalty_text, penalties)])
            ax.set_xlabel(PENALTY)
            ax.set_xlim(-0.5, len(penalties) - 0.5)
        lines.legend_below(figure, handles)
        return style.freeze_layout(figure)


def _over_time(panels: Iterable[Axes], tidy: Tidy, order: Sequence[str], penalties: Sequence[float]) -> None:
    """Draw the norm of the last state: a panel per penalty, a line per run and seed."""
    penalty_of = tidy.runs.set_index("run")["penalty"].to_dict()
    last = lines.last_states(tidy.trajectories)
    last = last.assign(penalty=last["run"].map(penalty_of), run=last["run"].map(without_penalty))
    looks = style.run_styles(order)
    for ax, penalty in zip(panels, penalties):
        style.log_scale(ax)
        for method, _, phase, line in lines.histories(last[last["penalty"] == penalty], order):
            epochs, values = line["epoch"].to_numpy(), line["hidden_norm"].to_numpy(float)
            lines.curve(ax, epochs, values, looks[method], label=method, phase=phase)
        ax.set_title(f"(a) $\\lambda$ = {penalty_text(penalty)}")
        lines.whole_numbers(ax, 4)


def _name_axes(panels: np.ndarray, used: int) -> None:
    """Name epochs below the lowest used panel of every column, norms beside every row; hide unused panels."""
    for ax in panels.flat[max(0, used - panels.shape[1]) : used]:
        ax.set_xlabel("epoch")
        ax.tick_params(labelbottom=True)
    for ax in panels[:, 0]:
        ax.set_ylabel("median $\\|h_L\\|$")
    for ax in panels.flat[used:]:
        ax.set_visible(False)


def _bars(ax: Axes, groups: Mapping[str, pd.DataFrame]) -> None:
    """Draw mean accuracy as a bar with a marker per seed, and the mean of the own frozen baseline across it."""
    looks, slot = style.run_styles(groups), GROUP / len(groups)
    for rank, (method, group) in enumerate(groups.items()):
        look, shift = looks[method], slot * (rank - (len(groups) - 1) / 2)
        for place, at in group.groupby("place"):
            x, beside = place + shift, lines.dodge(at["seed"].tolist(), 0.5 * slot)
            values = at["accuracy"].to_numpy(float)
            ax.bar(x, lines.mean(values), 0.9 * slot, color=look.colour, alpha=0.35, linewidth=0, label=method)
            lines.points(ax, x + np.array(list(beside.values())), values, look, label=method)
            frozen = lines.mean(at["own_frozen_acc"].to_numpy(float))
            ax.plot([x - slot / 2, x + slot / 2], [frozen, frozen], **FROZEN, solid_capstyle="butt")
    ax.set(title="(d) Accuracy", ylabel="test accuracy")
    style.percent_scale(ax)
