"""Figures of norms and accuracy over training, at every setting and at every residual penalty."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures import lines, style
from fa_audit.results.statistics import by_run, rank_runs, whole, without_penalty
from fa_audit.results.tidy import KEY, Tidy, side_of

ROW_HEIGHT, SURROUNDINGS = 1.6, 0.9  # inches: one setting; title and axis labels
HEADING = 45  # characters a line: the layout makes room for half of it above the first panel
MARKERS_PER_CURVE = 5
RING = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 7,
    "markerfacecolor": "none",
    "markeredgewidth": 0.8,
}
FIRST = "first firing of D1 or D2"
PANELS = {
    "hidden_norm": ("(a) Last state", "median $\\|h_L\\|$"),
    "grad_norm": ("(b) Reference", "median $\\|g_L\\|$"),
    "test_accuracy": ("(c) Accuracy", "test accuracy"),
}
FIRST_FLAGS = {
    "hidden_norm": "first_scale_flag",
    "grad_norm": "first_reference_flag",
}  # panel -> column of the runs


@style.styled
def trajectories(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw norms at the last state and test accuracy of every epoch: a row per setting, a line per
    run and seed.

    Norms have one scale in all rows, and a run looks the same everywhere.
    """
    tidy = joined(tidy)
    order = rank_runs(tidy.runs)
    handles = lines.run_handles(order, labels)
    if tidy.runs[list(FIRST_FLAGS.values())].notna().to_numpy().any():
        handles.append(Line2D([], [], color=style.GREY, **RING, label=FIRST))
    height = SURROUNDINGS + ROW_HEIGHT * len(tidy.settings) + lines.legend_height(handles)
    figure = style.new_figure(title, height=height)
    panels = figure.subplots(len(tidy.settings), len(PANELS), squeeze=False)
    for first, *below in panels.T[:2]:
        for ax in below:
            ax.sharey(first)
        style.log_scale(first)
    for setting, row in zip(tidy.settings, panels):
        own = tidy.of(setting)
        flags = own.runs.set_index(["run", "seed"])
        for column, ax in zip(PANELS, row):
            fired = flags[FIRST_FLAGS[column]].to_dict() if column in FIRST_FLAGS else {}
            _curves(ax, _last_states(own.trajectories), order, column, fired)
            lines.whole_numbers(ax, 5)
    _name_panels(panels, [labels.get(setting, setting) for setting in tidy.settings])
    for _, gradient, accuracy in panels:
        style.limit_line(gradient, thresholds.limits["reference"], "reference")
        style.percent_scale(accuracy)
    lines.legend_below(figure, handles)
    return figure


def joined(tidy: Tidy) -> Tidy:
    """Return one history per run and seed, under the run's own name: its snapshots' and, from epoch
    1 on, its own.

    They agree where they overlap, and epoch 0 is a snapshot's only. Everything else about a run is
    that of its latest network.
    """
    latest = tidy.runs["run"].map(lambda run: parse_run(run).until)
    runs, rows = (
        table.assign(run=table["run"].map(whole)) for table in (tidy.runs, tidy.followed())
    )
    runs = runs.loc[latest.sort_values().index].drop_duplicates(list(KEY), keep="last")
    return replace(tidy, runs=runs, trajectories=rows.drop_duplicates([*KEY, "epoch", "layer"]))


def _last_states(trajectories: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of every run's last state ``h_L``; networks may differ in depth."""
    return trajectories[
        trajectories["layer"] == trajectories.groupby("run")["layer"].transform("max")
    ]


def _curves(
    ax: Axes,
    states: pd.DataFrame,
    order: Sequence[str],
    column: str,
    fired: Mapping[tuple[str, int], float],
) -> None:
    """Draw a column of the last states: one thin line per run and seed, the best run last, so on
    top.

    Args:
        fired: by run and seed the epoch at which a check first fired, around which there is a ring.
    """
    looks = style.run_styles(order)
    for rank, run in reversed(list(enumerate(order))):
        for seed, rows in states[states["run"] == run].sort_values("epoch").groupby("seed"):
            epochs, values = lines.xy(rows, "epoch", column)
            _curve(ax, epochs, values, looks[run], label=run, phase=rank / len(order))
            at = epochs == fired.get((run, seed))
            _ring(ax, epochs[at], values[at], colour=looks[run].colour)


def _curve(
    ax: Axes,
    epochs: np.ndarray,
    values: np.ndarray,
    look: style.RunStyle,
    *,
    label: str,
    phase: float,
) -> None:
    """Draw one seed, with an arrow where a stretch begins that the axis cannot show.

    Args:
        phase: 0..1, the run's own: shifts its markers, so that those of equal runs do not cover
            each other.
    """
    step = max(1, len(epochs) // MARKERS_PER_CURVE)
    marks = {"markersize": 2.5, "markevery": (int(phase * step), step)}
    ax.plot(epochs, style.on_scale(ax, values), **look.options, **marks, linewidth=0.7, label=label)
    hidden = _off_scale(ax, values)
    leaves = hidden & ~np.concatenate([[False], hidden[:-1]])
    style.mark_off_scale(ax, epochs[leaves], values[leaves], colour=look.colour)


def _off_scale(ax: Axes, values: np.ndarray) -> np.ndarray:
    """Return which values the axis cannot show; missing ones are not among them."""
    return np.isnan(style.on_scale(ax, values)) & ~np.isnan(values)


def _ring(ax: Axes, epochs: np.ndarray, values: np.ndarray, *, colour: str) -> None:
    """Draw a ring around a point of a curve, or around the arrow in its place."""
    hidden = _off_scale(ax, values)
    heights = [
        style.OFF_SCALE[style.INFINITE if value == np.inf else style.ZERO][1]
        for value in values[hidden]
    ]
    ax.plot(epochs[~hidden], values[~hidden], color=colour, label=FIRST, **RING)
    ax.plot(
        epochs[hidden],
        heights,
        color=colour,
        label=FIRST,
        transform=ax.get_xaxis_transform(),
        **RING,
    )


def _name_panels(panels: np.ndarray, settings: Sequence[str]) -> None:
    """Name every panel by its quantity, and above by its title or, where there are several
    settings, the setting.
    """
    for column, (title, ylabel) in zip(panels.T, PANELS.values()):
        for ax in column:
            ax.set_ylabel(ylabel)
        column[-1].set_xlabel("epoch")
        column[0].set_title(title if len(settings) == 1 else "")
    for letter, ax, setting in zip(
        ascii_lowercase, panels[:, 0], settings if len(settings) > 1 else ()
    ):
        ax.set_title(textwrap.fill(f"({letter}) {setting}", HEADING))


# --- over training at every penalty, and against it
# ------------------------------------------------------------------

PANEL_HEIGHT, AROUND = 1.25, 1.2  # inches: one row of panels; titles and axis labels
OVER_TIME = {
    "hidden_norm": ("(a)", "median $\\|h_L\\|$"),
    "grad_norm": ("(b)", "median $\\|g_L\\|$"),
}
METRICS = {
    "deep_cosine": ("(c) Deep cosine", "at {}s of blocks $l \\geq 1$"),
    "deep_rho": ("(d) Deep $\\rho$", "at {}s of blocks $l \\geq 1$"),
    "accuracy": ("(e) Accuracy", "test accuracy"),
}
CREDITS = ("deep_cosine", "deep_rho", "fresh_b_mean", "fresh_b_std")
PENALTY = "residual penalty $\\lambda$"
DEVIATIONS, HALF_WIDTH = (
    2,
    0.3,
)  # of a fresh-B bar: half height in deviations; half width in distances of two penalties
FRESH = {
    "alpha": 0.35,
    "linewidth": 0,
    "label": f"fresh feedback B: mean ± {DEVIATIONS} s.d. of draws",
}
FROZEN = {"linewidth": 0.9, "linestyle": (0, (1, 1)), "label": "own frozen baseline"}


@style.styled
def penalty_rescue(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw last states and their gradients over training at every penalty; deep credit and accuracy
    against it.

    A method's runs at several penalties have one colour and marker. The penalties, 0 among them,
    stand at equal distances. Labels are those of methods, i.e. of runs without their penalty.
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
    figure = style.new_figure(
        title, height=AROUND + 3.2 * PANEL_HEIGHT + lines.legend_height(handles)
    )
    above, below = figure.add_gridspec(2, 1, height_ratios=[2, 1.2])
    over_time = above.subgridspec(2, len(penalties)).subplots(
        sharex=True, sharey="row", squeeze=False
    )
    _over_time(over_time, tidy, order, penalties)
    for ax in over_time[1]:
        style.limit_line(
            ax, thresholds.limits["reference"], "reference", named=ax is over_time[1, -1]
        )
    for ax, column in zip(below.subgridspec(1, len(METRICS)).subplots(), METRICS):
        _against_penalty(ax, groups, column, penalties, "input" if side else "output")
    lines.legend_below(figure, handles)
    return figure


def _over_time(
    panels: np.ndarray, tidy: Tidy, order: Sequence[str], penalties: Sequence[float]
) -> None:
    """Draw norms of the last state and of its gradient: a row each, a panel per penalty, a line per
    run and seed.
    """
    penalty_of = tidy.runs.set_index("run")["penalty"].to_dict()
    last = _last_states(tidy.followed())
    last = last.assign(penalty=last["run"].map(penalty_of), run=last["run"].map(without_penalty))
    for row, (column, (letter, ylabel)) in zip(panels, OVER_TIME.items()):
        style.log_scale(row[0])
        row[0].set_title(letter)
        row[0].set_ylabel(ylabel)
        for ax, penalty in zip(row, penalties):
            _curves(ax, last[last["penalty"] == penalty], order, column, {})
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
            measured = group.dropna(subset=["fresh_b_mean", "fresh_b_std"])
            draws = measured.groupby("place")[
                ["fresh_b_mean", "fresh_b_std"]
            ].mean()  # averaged over seeds
            for place, (middle, deviation) in draws.iterrows():
                low, height = middle - DEVIATIONS * deviation, 2 * DEVIATIONS * deviation
                ax.bar(
                    place,
                    height,
                    2 * HALF_WIDTH,
                    bottom=low,
                    color=looks[method].colour,
                    zorder=1,
                    **FRESH,
                )
        elif column == "accuracy":  # the own frozen baseline has no penalty: one for all of them
            known = group.drop_duplicates(["seed", "own_frozen_acc"])["own_frozen_acc"].to_numpy(
                float
            )
            if not np.isnan(frozen := lines.mean(known)):
                ax.axhline(frozen, color=looks[method].colour, zorder=1, **FROZEN)
    if column == "accuracy":
        style.percent_scale(ax)
    else:
        ax.axhline(0, **lines.NOUGHT)
    name, ylabel = METRICS[column]
    ax.set(title=name, xlabel=PENALTY, xlim=(-0.5, len(penalties) - 0.5))
    ax.set_ylabel(ylabel.format(side), fontsize=style.SMALL)
    ax.set_xticks(range(len(penalties)), [style.power(penalty) for penalty in penalties])
