"""Figures of norms and accuracy over training, by setting and by residual penalty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fa_audit.core.measured import AT_INPUT
from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.statistics import by_run, rank_runs, whole, without_penalty
from fa_audit.results.tidy import KEY, Tidy

_HEADING = 45  # characters in a line of a setting's name
_MARKERS_PER_CURVE = 5
FIRST = "first firing of D1 or D2"
_PANELS = {
    "hidden_norm": "median $\\|h_L\\|$",
    "grad_norm": "median $\\|g_L\\|$",
    "test_accuracy": "test accuracy",
}
# Panel -> the column of the runs with the epoch in which its check first fired.
_FIRST_FLAGS = {"hidden_norm": "first_scale_flag", "grad_norm": "first_reference_flag"}


@style.styled
def trajectories(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Norm of the last state (left), norm of the reference gradient there (middle), and test
    accuracy (right) after every epoch; one line per run and seed, one row per setting. D2 fires in
    the shaded part, where a cosine with that gradient says nothing. Rings mark the first epoch at
    which D1 (left) or D2 (middle) fired in that run and seed. All rows share the scales of the
    norms.
    """
    tidy = joined(tidy)
    order = rank_runs(tidy.runs)
    figure = style.new_figure(title, height=0.7 + 1.6 * len(tidy.settings))
    panels = figure.subplots(len(tidy.settings), len(_PANELS), squeeze=False)
    for first, *below in panels.T[:2]:
        for ax in below:
            ax.sharey(first)
        style.log_scale(first)
    for letter, setting, row in zip(ascii_lowercase, tidy.settings, panels):
        part = tidy.of(setting)
        runs = part.runs.set_index(["run", "seed"])
        for ax, (column, name) in zip(row, _PANELS.items()):
            fired = runs[_FIRST_FLAGS[column]] if column in _FIRST_FLAGS else runs["accuracy"][:0]
            _curves(ax, _last_states(part.trajectories), order, column, fired.to_dict())
            ax.set_ylabel(name)
        row[0].set_title(style.wrap(f"({letter}) {labels.get(setting, setting)}", _HEADING))
    for _, gradient, accuracy in panels:
        style.limit_line(gradient, thresholds.limits["reference"], "reference")
        style.percent_scale(accuracy)
    for ax in panels[-1]:
        ax.set_xlabel("epoch")
    handles = style.run_handles(order, labels)
    if tidy.runs[list(_FIRST_FLAGS.values())].notna().to_numpy().any():
        handles.append(Line2D([], [], **style.RING, label=FIRST))
    style.legend_below(figure, handles)
    return figure


def joined(tidy: Tidy) -> Tidy:
    """Return one history per run and seed, under the run's own name.

    It begins with the run's snapshots, because only they have epoch 0. Everything else about a run
    comes from its latest network.
    """
    runs = tidy.runs.assign(until=tidy.runs["run"].map(lambda run: parse_run(run).until))
    runs = runs.sort_values("until", kind="stable").assign(
        run=lambda table: table["run"].map(whole)
    )
    rows = tidy.followed()
    rows = rows.assign(run=rows["run"].map(whole)).drop_duplicates([*KEY, "epoch", "layer"])
    return replace(tidy, runs=runs.drop_duplicates(list(KEY), keep="last"), trajectories=rows)


def _last_states(trajectories: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of every run's last state ``h_L``; networks may differ in depth."""
    last = trajectories.groupby("run")["layer"].transform("max")
    return trajectories[trajectories["layer"] == last]


def _curves(
    ax: Axes,
    states: pd.DataFrame,
    order: Sequence[str],
    column: str,
    fired: Mapping[tuple[str, int], float],
) -> None:
    """Draw a column of the last states: one thin line per run and seed, the best run on top.

    Args:
        fired: the epoch at which a check first fired, by run and seed; a ring marks it.
    """
    looks = style.run_styles(order)
    for rank, run in reversed(list(enumerate(order))):
        colour = looks[run].colour
        ring = style.RING | {"color": colour, "label": FIRST}
        for seed, rows in states[states["run"] == run].sort_values("epoch").groupby("seed"):
            epochs, values = style.numbers(rows, "epoch", column)
            shown = style.on_scale(ax, values)
            # Each run has its markers at epochs of its own, so that equal runs stay visible.
            step = max(1, len(epochs) // _MARKERS_PER_CURVE)
            marks = {"markersize": 2.5, "markevery": (int(rank / len(order) * step), step)}
            ax.plot(epochs, shown, **looks[run].options, **marks, linewidth=0.7, label=run)
            # An arrow stands where a stretch begins that the axis cannot show.
            hidden = np.isnan(shown) & ~np.isnan(values)
            begins = hidden & ~np.concatenate([[False], hidden[:-1]])
            style.mark_off_scale(ax, epochs[begins], values[begins], colour=colour)
            at = epochs == fired.get((run, seed))
            ax.plot(epochs[at & ~hidden], values[at & ~hidden], **ring)
    style.whole_numbers(ax, 5)


# --- over training at every penalty, and against it

_OVER_TIME = {"hidden_norm": "median $\\|h_L\\|$", "grad_norm": "median $\\|g_L\\|$"}
_METRICS = {
    "deep_cosine": ("(c) Deep cosine", "at {}s of blocks $l \\geq 1$"),
    "deep_rho": ("(d) Deep $\\rho$", "at {}s of blocks $l \\geq 1$"),
    "accuracy": ("(e) Accuracy", "test accuracy"),
}
_CREDITS = ("deep_cosine", "deep_rho", "fresh_b_mean", "fresh_b_std")
_FRESH = {
    "alpha": 0.35,
    "linewidth": 0,
    "label": "fresh feedback B: mean ± 2 s.d. of draws",
}
_FROZEN = {"linewidth": 0.9, "linestyle": style.DOTTED, "label": "own frozen baseline"}


@style.styled
def penalty_rescue(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """The effect of a residual penalty. (a), (b): median norm of the last state and of the loss's
    gradient there after every epoch; one panel per penalty, one line per method and seed; D2 fires
    in the shaded
    part. (c): cosine of the credit with the reference gradient, averaged over the blocks after the
    first; the bars are the cosine under feedback that the network has never seen, mean and two
    standard deviations of 20 draws. (d): correlation of the credit's predictions with measured
    changes of the loss, averaged likewise. (e): accuracy on the whole test set; dotted lines are
    mean accuracies of the methods' own frozen baselines, which have no penalty. A marker is one
    seed, a line the mean over n seeds (a range of n if some are missing). Penalties, 0 included,
    are spaced equally.
    """
    # Labels are those of methods: a method's runs at several penalties look the same.
    runs = tidy.runs.assign(run=tidy.runs["run"].map(without_penalty))
    for name in _CREDITS:
        runs[name] = runs[f"{name}{AT_INPUT}"]
    order, penalties = rank_runs(runs), sorted(set(runs["penalty"]))
    groups = by_run(runs.assign(place=runs["penalty"].map(penalties.index)), order, "place", "seed")
    figure = style.new_figure(title, height=4.9)
    above, below = figure.add_gridspec(2, 1, height_ratios=[2, 1.2])
    shared = {"sharex": True, "sharey": "row", "squeeze": False}
    over_time = above.subgridspec(2, len(penalties)).subplots(**shared)
    _over_time(over_time, tidy, order, penalties)
    for ax in over_time[1]:
        last = ax is over_time[1, -1]
        style.limit_line(ax, thresholds.limits["reference"], "reference", named=last)
    for ax, column in zip(below.subgridspec(1, len(_METRICS)).subplots(), _METRICS):
        _against_penalty(ax, groups, column, "input")
        ax.set(xlabel="residual penalty $\\lambda$", xlim=(-0.5, len(penalties) - 0.5))
        ax.set_xticks(range(len(penalties)), map(style.power, penalties))
    names = style.counted(groups, labels, list(_METRICS), "place")
    handles = [*style.run_handles(groups, names), *style.mark_handles()]
    if runs["fresh_b_mean"].notna().any():
        handles.append(Patch(color=style.GREY, **_FRESH))
    if runs["own_frozen_acc"].notna().any():
        handles.append(Line2D([], [], color=style.GREY, **_FROZEN))
    style.legend_below(figure, handles)
    return figure


def _over_time(
    panels: np.ndarray, tidy: Tidy, order: Sequence[str], penalties: Sequence[float]
) -> None:
    """Draw norms of the last state and of its gradient: a row each, a panel per penalty."""
    penalty_of = tidy.runs.set_index("run")["penalty"].to_dict()
    last = _last_states(tidy.followed())
    last = last.assign(penalty=last["run"].map(penalty_of), run=last["run"].map(without_penalty))
    for letter, row, (column, name) in zip("ab", panels, _OVER_TIME.items()):
        style.log_scale(row[0])
        row[0].set_title(f"({letter})")
        row[0].set_ylabel(name)
        for ax, penalty in zip(row, penalties):
            _curves(ax, last[last["penalty"] == penalty], order, column, {})
    for above, below, penalty in zip(*panels, penalties):
        above.set_title(f"$\\lambda$ = {style.power(penalty)}", loc="center", fontweight="normal")
        below.set_xlabel("epoch")
        style.whole_numbers(below, 3)


def _against_penalty(ax: Axes, groups: Mapping[str, pd.DataFrame], column: str, side: str) -> None:
    style.seeds_and_means(ax, groups, "place", column)
    looks = style.run_styles(groups)
    for method, group in groups.items():
        colour = looks[method].colour
        if column == "deep_cosine":
            found = group.dropna(subset=["fresh_b_mean", "fresh_b_std"]).groupby("place")
            draws = found[["fresh_b_mean", "fresh_b_std"]].mean()
            low, height = draws["fresh_b_mean"] - 2 * draws["fresh_b_std"], 4 * draws["fresh_b_std"]
            ax.bar(draws.index, height, 0.6, bottom=low, color=colour, zorder=1, **_FRESH)
        elif column == "accuracy":
            # The own frozen baseline has no penalty: it is one for all of them.
            baselines = group.drop_duplicates(["seed", "own_frozen_acc"])["own_frozen_acc"]
            frozen = style.mean(baselines.to_numpy(float))
            if not np.isnan(frozen):
                ax.axhline(frozen, color=colour, zorder=1, **_FROZEN)
    if column == "accuracy":
        style.percent_scale(ax)
    else:
        ax.axhline(0, **style.NOUGHT)
    name, ylabel = _METRICS[column]
    ax.set_title(name)
    ax.set_ylabel(ylabel.format(side), fontsize=style.SMALL)
