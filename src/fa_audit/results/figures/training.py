"""Figures of norms and accuracy over training, by setting and by residual penalty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fa_audit.core.measured import AT_INPUT
from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.statistics import by_run, rank_runs, whole, without_penalty
from fa_audit.results.tidy import KEY, Tidy

_HEADING = 45  # characters in a line of a setting's name
_MARKERS_PER_CURVE = 5
FIRST = "first firing of D1 or D2"
_PANELS = {  # column of the trajectories -> its axis
    "hidden_norm": "median $\\|h_L\\|$",
    "grad_norm": "median $\\|g_L\\|$",
    "test_accuracy": "test accuracy",
}
# Panel -> the column of the runs table that has the epoch at which the panel's check first fired.
_FIRST_FLAGS = {"hidden_norm": "first_scale_flag", "grad_norm": "first_reference_flag"}


@style.styled
def trajectories(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Norm of the last state (left), norm of the reference gradient there (middle), and test
    accuracy (right) after every epoch; one line per run and seed, one row per setting. D2 fires in
    the shaded parts (middle), where a cosine with that gradient says nothing. Rings mark the first
    epoch at which D1 (left) or D2 (middle) fired in that run and seed. All rows share the scales of
    the norms.
    """
    # A run and its snapshots make one curve: epoch 0 is measured in the snapshot +epoch0 only.
    # The rank of a curve, and the rings on it, are those of its longest training.
    until = tidy.runs["run"].map(lambda run: parse_run(run).until)
    runs = tidy.runs.assign(run=tidy.runs["run"].map(whole), until=until)
    runs = runs.sort_values("until", kind="stable").drop_duplicates(KEY, keep="last")
    states = _last_states(tidy)
    states = states.assign(run=states["run"].map(whole)).drop_duplicates([*KEY, "epoch"])
    states = states.merge(runs[[*KEY, *_FIRST_FLAGS.values()]], "left", on=KEY)
    order = rank_runs(runs)
    figure = style.new_figure(title, height=0.7 + 1.6 * len(tidy.settings))
    panels = figure.subplots(len(tidy.settings), len(_PANELS), squeeze=False)
    for first, *below in panels.T[:2]:
        for ax in below:
            ax.sharey(first)
        style.log_scale(first)
    for letter, setting, row in zip(ascii_lowercase, tidy.settings, panels):
        for ax, (column, name) in zip(row, _PANELS.items()):
            own = states[states["setting"] == setting]
            _curves(ax, own, order, column, _FIRST_FLAGS.get(column, ""))
            ax.set_ylabel(name)
        row[0].set_title(style.wrap(f"({letter}) {labels.get(setting, setting)}", _HEADING))
    for _, gradient, accuracy in panels:
        style.limit_line(gradient, "reference", thresholds)
        style.percent_scale(accuracy)
    for ax in panels[-1]:
        ax.set_xlabel("epoch")
    entries = style.run_entries(order, labels)
    if runs[list(_FIRST_FLAGS.values())].notna().to_numpy().any():
        entries[FIRST] = style.RING
    style.legend_below(figure, entries)
    return figure


def _last_states(tidy: Tidy) -> pd.DataFrame:
    """Return the rows of every run's last state ``h_L``; networks may differ in depth."""
    rows = tidy.followed()
    last = rows.groupby(["setting", "run"])["layer"].transform("max")
    return rows[rows["layer"] == last].sort_values("epoch", kind="stable")


def _curves(
    ax: Axes, states: pd.DataFrame, order: Sequence[str], column: str, first_flag: str = ""
) -> None:
    """Draw a column of `_last_states`: one thin line per run and seed, the best run on top.

    Args:
        first_flag: the column with the epoch at which a check first fired; a ring marks it.
    """
    looks = style.run_styles(order)
    for rank, run in reversed(list(enumerate(order))):
        colour = looks[run]["color"]
        for _, rows in states[states["run"] == run].groupby("seed"):
            epochs, values = rows["epoch"], rows[column]
            # Runs have their markers at different epochs, so that equal runs stay visible.
            step = max(1, len(epochs) // _MARKERS_PER_CURVE)
            marks = {"markersize": 2.5, "markevery": (int(rank / len(order) * step), step)}
            ax.plot(epochs, values, **looks[run], **marks, linewidth=0.7, label=run)
            # An arrow marks the first of successive values that the axis cannot show.
            hidden = np.isinf(values) | (values <= 0)
            begins = hidden & np.diff(hidden, prepend=False)
            style.mark_off_scale(ax, epochs[begins], values[begins], colour=colour)
            if first_flag:
                first = rows[rows["epoch"] == rows[first_flag]]
                ring = style.RING | {"color": colour, "label": FIRST}
                ax.plot(first["epoch"], first[column], **ring)
    style.whole_numbers(ax, 5)


# --- training at every penalty, and the effect of the penalty

_AGAINST_PENALTY = {  # column of the runs -> title and axis of its panel
    f"deep_cosine{AT_INPUT}": ("(c) Deep cosine", "at inputs of blocks $l \\geq 1$"),
    f"deep_rho{AT_INPUT}": ("(d) Deep $\\rho$", "at inputs of blocks $l \\geq 1$"),
    "accuracy": ("(e) Accuracy", "test accuracy"),
}
_NULL, _NULL_STD = f"fresh_b_mean{AT_INPUT}", f"fresh_b_std{AT_INPUT}"
_FROZEN: style.Look = {"linewidth": 0.9, "linestyle": ":", "label": "own frozen baseline"}


@style.styled
def penalty_rescue(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """The effect of a residual penalty. (a), (b): median norm of the last state and of the loss's
    gradient there after every epoch; one panel per penalty, one line per method and seed; D2 fires
    in the shaded parts of (b). (c): cosine of the credit with the reference gradient, averaged over
    the blocks after the first; the bars are the cosine under feedback that the network has never
    seen, mean and two standard deviations of 20 draws. (d): correlation of the credit's predictions
    with measured changes of the loss, averaged likewise. (e): accuracy on the whole test set;
    dotted lines are mean accuracies of the methods' own frozen baselines, which have no penalty. In
    (c) to (e) a marker is one seed, a line the mean over n seeds (n is a range if some seeds are
    missing); penalties, 0 included, are spaced equally.
    """
    # Labels are those of methods: a method's runs at several penalties look the same.
    runs = tidy.runs.assign(run=tidy.runs["run"].map(without_penalty))
    order, penalties = rank_runs(runs), sorted(set(runs["penalty"]))
    groups = by_run(runs.assign(place=runs["penalty"].map(penalties.index)), order, "place", "seed")
    figure = style.new_figure(title, height=4.9)
    above, below = figure.add_gridspec(2, 1, height_ratios=[2, 1.2])
    grid = above.subgridspec(2, len(penalties))
    over_time = grid.subplots(sharex=True, sharey="row", squeeze=False)
    _over_time(over_time, tidy, order, penalties)
    for ax in over_time[1]:
        is_last = ax is over_time[1, -1]
        style.limit_line(ax, "reference", thresholds, named=is_last)
    against = below.subgridspec(1, len(_AGAINST_PENALTY)).subplots()
    for ax in against[:2]:
        ax.axhline(0, **style.NOUGHT)
    for ax, (column, (name, ylabel)) in zip(against, _AGAINST_PENALTY.items()):
        style.seeds_and_means(ax, groups, "place", column)
        ax.set_title(name)
        ax.set_ylabel(ylabel, fontsize=style.SMALL)
        ax.set(xlabel="residual penalty $\\lambda$", xlim=(-0.5, len(penalties) - 0.5))
        ax.set_xticks(range(len(penalties)), map(style.power, penalties))
    _nulls_and_baselines(against[0], against[-1], groups)
    entries = style.mean_entries(groups, labels, list(_AGAINST_PENALTY), "place")
    if runs[_NULL].notna().any():
        entries["fresh feedback B: mean ± 2 s.d. of draws"] = style.AREA | {"alpha": 0.35}
    if runs["own_frozen_acc"].notna().any():
        entries[_FROZEN["label"]] = _FROZEN | {"color": style.GREY}
    style.legend_below(figure, entries)
    return figure


def _over_time(
    panels: np.ndarray, tidy: Tidy, order: Sequence[str], penalties: Sequence[float]
) -> None:
    """Draw norms of the last state and of its gradient: a row each, a panel per penalty."""
    states = _last_states(tidy)
    penalty_of = states["run"].map(lambda run: parse_run(run).penalty)
    states = states.assign(run=states["run"].map(without_penalty))
    for letter, row, column in zip("ab", panels, _PANELS):
        style.log_scale(row[0])
        row[0].set_title(f"({letter})")
        row[0].set_ylabel(_PANELS[column])
        for ax, penalty in zip(row, penalties):
            _curves(ax, states[penalty_of == penalty], order, column)
    for above, below, penalty in zip(*panels, penalties):
        above.set_title(f"$\\lambda$ = {style.power(penalty)}", loc="center", fontweight="normal")
        below.set_xlabel("epoch")
        style.whole_numbers(below, 3)


def _nulls_and_baselines(cosine: Axes, accuracy: Axes, groups: Mapping[str, pd.DataFrame]) -> None:
    """Draw cosines under fresh feedback as bars, every method's own frozen baseline as a line."""
    looks = style.run_styles(groups)
    for method, rows in groups.items():
        colour = looks[method]["color"]
        draws = rows.groupby("place")[[_NULL, _NULL_STD]].mean()
        low, height = draws[_NULL] - 2 * draws[_NULL_STD], 4 * draws[_NULL_STD]
        look = {"color": colour, "alpha": 0.35, "linewidth": 0, "zorder": 1}
        cosine.bar(draws.index, height, 0.6, bottom=low, **look)
        # All penalties share a method's own frozen baseline, which has no penalty.
        frozen = rows.drop_duplicates(["seed", "own_frozen_acc"])["own_frozen_acc"].mean()
        accuracy.axhline(frozen, color=colour, zorder=1, **_FROZEN)
    style.percent_scale(accuracy)
