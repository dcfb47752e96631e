"""What a residual penalty rescues: the scale of states and gradients, the direction of the credit, the accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import lines, style
from fa_audit.results.statistics import by_run, rank_runs, without_penalty
from fa_audit.results.tidy import Tidy, side_of

ROW_HEIGHT, SURROUNDINGS = 1.25, 1.2  # inches: one row of panels; titles and axis labels
OVER_TIME = {"hidden_norm": ("(a)", "median $\\|h_L\\|$"), "grad_norm": ("(b)", "median $\\|g_L\\|$")}
METRICS = {
    "deep_cosine": ("(c) Deep cosine", "at {}s of blocks $l \\geq 1$"),
    "deep_rho": ("(d) Deep $\\rho$", "at {}s of blocks $l \\geq 1$"),
    "accuracy": ("(e) Accuracy", "test accuracy"),
}
CREDITS = ("deep_cosine", "deep_rho", "fresh_b_mean", "fresh_b_std")
PENALTY = "residual penalty $\\lambda$"
DEVIATIONS, HALF_WIDTH = 2, 0.3  # of a fresh-B bar: standard deviations of the draws; of the distance of two penalties
FRESH = {"alpha": 0.35, "linewidth": 0, "label": f"fresh feedback B: mean ± {DEVIATIONS} s.d. of draws"}
FROZEN = {"linewidth": 0.9, "linestyle": (0, (1, 1)), "label": "own frozen baseline"}


@style.styled
def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw last states and their gradients over training at every penalty; deep credit and accuracy against it.

    A method's runs at several penalties have one colour and marker. The penalties, 0 among them, stand at equal
    distances. Labels are those of methods, i.e. of runs without their penalty.
    """
    runs = tidy.runs.assign(run=tidy.runs["run"].map(without_penalty))
    side = side_of(runs, *CREDITS)
    runs = runs.assign(**{name: runs[f"{name}{side}"] for name in CREDITS})
    order, penalties = rank_runs(runs), sorted(set(runs["penalty"]))
    groups = by_run(runs.assign(place=runs["penalty"].map(penalties.index)), order, "place", "seed")
    names = lines.counted(groups, labels, columns=list(METRICS), at="place")
    handles: list[Artist] = [*lines.run_handles(groups, names), *lines.mark_handles()]
    if runs["fresh_b_mean"].notna().any():
        handles.append(Patch(color=style.GREY, **FRESH))
    if runs["own_frozen_acc"].notna().any():
        handles.append(Line2D([], [], color=style.GREY, **FROZEN))
    figure = style.new_figure(title, height=SURROUNDINGS + 3.2 * ROW_HEIGHT + lines.legend_height(handles))
    above, below = figure.add_gridspec(2, 1, height_ratios=[2, 1.2])
    over_time = above.subgridspec(2, len(penalties)).subplots(sharex=True, sharey="row", squeeze=False)
    _over_time(over_time, tidy, order, penalties)
    for ax in over_time[1]:
        style.limit_line(ax, thresholds.limits["reference"], "reference", named=ax is over_time[1, -1])
    for ax, column in zip(below.subgridspec(1, len(METRICS)).subplots(), METRICS):
        _against_penalty(ax, groups, column, penalties, "input" if side else "output")
    lines.legend_below(figure, handles)
    return figure


def _over_time(panels: np.ndarray, tidy: Tidy, order: Sequence[str], penalties: Sequence[float]) -> None:
    """Draw norms of the last state and of its gradient: a row each, a panel per penalty, a line per run and seed."""
    penalty_of = tidy.runs.set_index("run")["penalty"].to_dict()
    last = lines.last_states(tidy.trajectories)
    last = last.assign(penalty=last["run"].map(penalty_of), run=last["run"].map(without_penalty))
    looks = style.run_styles(order)
    for row, (column, (letter, ylabel)) in zip(panels, OVER_TIME.items()):
        style.log_scale(row[0])
        row[0].set_title(letter)
        row[0].set_ylabel(ylabel)
        for ax, penalty in zip(row, penalties):
            for method, _, phase, line in lines.histories(last[last["penalty"] == penalty], order):
                lines.curve(ax, *lines.xy(line, "epoch", column), looks[method], label=method, phase=phase)
            lines.whole_numbers(ax, 3)
    for above, below, penalty in zip(*panels, penalties):
        above.set_title(f"$\\lambda$ = {style.power(penalty)}", loc="center", fontweight="normal")
        below.set_xlabel("epoch")


def _against_penalty(
    ax: Axes, groups: Mapping[str, pd.DataFrame], column: str, penalties: Sequence[float], side: str
) -> None:
    lines.seeds_and_means(ax, groups, "place", column)
    looks = style.run_styles(groups)
    for method, group in groups.items():
        if column == "deep_cosine":
            _fresh_feedback(ax, group, looks[method].colour)
        elif column == "accuracy":  # the own frozen baseline has no penalty: one for all of them
            known = group.drop_duplicates(["seed", "own_frozen_acc"])["own_frozen_acc"]
            ax.axhline(lines.mean(known.to_numpy(float)), color=looks[method].colour, zorder=1, **FROZEN)
    if column == "accuracy":
        style.percent_scale(ax)
    else:
        ax.axhline(0, **lines.NOUGHT)
    name, ylabel = METRICS[column]
    ax.set(title=name, xlabel=PENALTY, xlim=(-0.5, len(penalties) - 0.5))
    ax.set_ylabel(ylabel.format(side), fontsize=style.SMALL)
    ax.set_xticks(range(len(penalties)), [style.power(penalty) for penalty in penalties])


def _fresh_feedback(ax: Axes, group: pd.DataFrame, colour: str) -> None:
    """Draw a bar of the spread of draws that the network has never seen, averaged over seeds, at every penalty."""
    measured = group.dropna(subset=["fresh_b_mean", "fresh_b_std"])
    for place, (middle, deviation) in measured.groupby("place")[["fresh_b_mean", "fresh_b_std"]].mean().iterrows():
        spread = DEVIATIONS * deviation
        ax.bar(place, 2 * spread, 2 * HALF_WIDTH, bottom=middle - spread, color=colour, zorder=1, **FRESH)
