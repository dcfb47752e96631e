"""How states, reference gradients and accuracy move over training, and when the checks first fire."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.experiments.spec import parse_run
from fa_audit.results.figures import lines, style
from fa_audit.results.statistics import rank_runs, whole
from fa_audit.results.tidy import KEY, Tidy

ROW_HEIGHT, SURROUNDINGS = 1.6, 0.9  # inches: one setting; title and axis labels
HEADING = 45  # characters a line: the layout makes room for half of it above the first panel
RING = {"linestyle": "none", "marker": "o", "markersize": 7, "markerfacecolor": "none", "markeredgewidth": 0.8}
FIRST = "first firing of D1 or D2"
PANELS = {
    "hidden_norm": ("(a) Last state", "median $\\|h_L\\|$"),
    "grad_norm": ("(b) Reference", "median $\\|g_L\\|$"),
    "test_accuracy": ("(c) Accuracy", "test accuracy"),
}
FIRST_FLAGS = {"hidden_norm": "first_scale_flag", "grad_norm": "first_reference_flag"}  # panel -> column of the runs


@style.styled
def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw norms at the last state and test accuracy of every epoch: a row per setting, a line per run and seed.

    Norms have one scale in all rows, and a run looks the same everywhere.
    """
    tidy = joined(tidy)
    order = rank_runs(tidy.runs)
    fired = tidy.runs[list(FIRST_FLAGS.values())].notna().to_numpy().any()
    handles = lines.run_handles(order, labels)
    handles += [Line2D([], [], color=style.GREY, **RING, label=FIRST)] if fired else []
    height = SURROUNDINGS + ROW_HEIGHT * len(tidy.settings) + lines.legend_height(handles)
    figure = style.new_figure(title, height=height)
    panels = figure.subplots(len(tidy.settings), len(PANELS), squeeze=False)
    for first, *below in panels.T[:2]:
        for ax in below:
            ax.sharey(first)
        style.log_scale(first)
    for setting, row in zip(tidy.settings, panels):
        for column, ax in zip(PANELS, row):
            _panel(ax, tidy.of(setting), column, order)
    _name_panels(panels, [labels.get(setting, setting) for setting in tidy.settings])
    for _, gradient, accuracy in panels:
        style.limit_line(gradient, thresholds.limits["reference"], "reference")
        style.percent_scale(accuracy)
    lines.legend_below(figure, handles)
    return figure


def joined(tidy: Tidy) -> Tidy:
    """Return one history per run and seed, under the run's own name: its snapshots' and, from epoch 1 on, its own.

    They agree where they overlap, and epoch 0 is a snapshot's only. What else is known of a run is that of its latest
    network.
    """
    latest = tidy.runs["run"].map(lambda run: parse_run(run).until)
    runs, rows = (table.assign(run=table["run"].map(whole)) for table in (tidy.runs, tidy.trajectories))
    runs = runs.loc[latest.sort_values().index].drop_duplicates(list(KEY), keep="last")
    return replace(tidy, runs=runs, trajectories=rows.drop_duplicates([*KEY, "epoch", "layer"]))


def _panel(ax: Axes, tidy: Tidy, column: str, order: Sequence[str]) -> None:
    """Draw one thin line per run and seed of one setting, ringed where the check of this panel first fired."""
    looks, last = style.run_styles(order), lines.last_states(tidy.trajectories)
    flag = FIRST_FLAGS.get(column)
    first = {} if flag is None else tidy.runs.set_index(["run", "seed"])[flag].to_dict()
    for run, seed, phase, line in lines.histories(last, order):
        epochs, values = lines.xy(line, "epoch", column)
        lines.curve(ax, epochs, values, looks[run], label=run, phase=phase)
        at = epochs == first.get((run, seed))
        _ring(ax, epochs[at], values[at], colour=looks[run].colour)
    lines.whole_numbers(ax, 5)


def _ring(ax: Axes, epochs: np.ndarray, values: np.ndarray, *, colour: str) -> None:
    """Draw a ring around a point of a curve, or around the arrow that stands for it."""
    hidden = lines.off_scale(ax, values)
    heights = [style.OFF_SCALE[style.INFINITE if value == np.inf else style.ZERO][1] for value in values[hidden]]
    ax.plot(epochs[~hidden], values[~hidden], color=colour, label=FIRST, **RING)
    ax.plot(epochs[hidden], heights, color=colour, label=FIRST, transform=ax.get_xaxis_transform(), **RING)


def _name_panels(panels: np.ndarray, settings: Sequence[str]) -> None:
    """Name every panel by its quantity, and above by its title or, where there are several settings, the setting."""
    for column, (title, ylabel) in zip(panels.T, PANELS.values()):
        for ax in column:
            ax.set_ylabel(ylabel)
        column[-1].set_xlabel("epoch")
        column[0].set_title(title if len(settings) == 1 else "")
    for letter, ax, setting in zip(ascii_lowercase, panels[:, 0], settings if len(settings) > 1 else ()):
        ax.set_title(textwrap.fill(f"({letter}) {setting}", HEADING))
