"""Figures of depth: the accuracy that each trained block adds, and checks by number of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from string import ascii_lowercase

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fa_audit.core.errors import AuditError
from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.statistics import by_run, rank_runs
from fa_audit.results.tidy import Tidy

_HEADING = 34  # characters of a panel's title in one line


@style.styled
def depth_ladder(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """The depth-utility ladder: accuracy on the whole test set with the top k blocks trained and
    the lower ones left at initialisation, a panel per network. k = L is the whole network, k = 0
    its own frozen baseline, in which the method trains embedding and head only. A marker is one
    seed, a line the mean over n seeds. Runs with a residual penalty or random targets are left out.

    Raises:
        AuditError: a setting has no run of a ladder.
    """
    rungs = pd.concat([_rungs(tidy.of(setting).runs) for setting in tidy.settings])
    order = rank_runs(rungs)
    rows, columns = -(-len(tidy.settings) // 2), min(2, len(tidy.settings))
    figure = style.new_figure(title, height=2.4 * rows)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for letter, ax, setting in zip(ascii_lowercase, panels.flat, tidy.settings):
        own = rungs[rungs["setting"] == setting]
        # A run's look depends on the other runs in `order`, so pass the `order` of the legend.
        style.seeds_and_means(ax, by_run(own, order, "k", "seed"), "k", "accuracy")
        style.whole_numbers(ax, 9)
        ax.set_xlabel("trained blocks $k$")
        ax.set_title(style.wrap(f"({letter}) {labels.get(setting, setting)}", _HEADING))
    for ax in panels[:, 0]:
        ax.set_ylabel("test accuracy")
    for ax in panels.flat[len(tidy.settings) :]:
        ax.remove()
    style.percent_scale(panels[0, 0])
    groups = by_run(rungs, order, "k")
    entries = style.mean_entries(groups, labels, ["accuracy"], ["setting", "k"])
    style.legend_below(figure, entries)
    return figure


def _rungs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return every measured rung of a setting's ladders, as ``setting, run, k, seed, accuracy``.

    Rung k has the top k blocks trained: k = L is the plain run, 0 < k < L a run whose first L - k
    blocks are frozen, and k = 0 the plain run's own frozen baseline. ``run`` is the plain run's
    name.

    Raises:
        AuditError: no run belongs to a ladder.
    """
    other = runs["random_targets"].astype(bool) | runs["shallow"].astype(bool)
    trained = runs[~other & (runs["penalty"] == 0)]
    ladders = trained["run"].map(lambda run: str(replace(parse_run(run), frozen=0)))
    trained = trained.assign(run=ladders, k=trained["depth"] - trained["frozen_blocks"])
    plain = trained[trained["frozen_blocks"] == 0]
    frozen = plain.assign(k=0, accuracy=plain["own_frozen_acc"])
    found = pd.concat([trained[trained["k"] > 0], frozen])
    found = found[["setting", "run", "k", "seed", "accuracy"]].dropna()
    if found.empty:
        names = ", ".join(sorted(set(runs["run"])))
        raise AuditError(
            f"depth_ladder: found {names}; expected runs of a ladder, such as dfa and dfa+frozen1."
        )
    return found


_PANELS = {  # column of the runs -> title and axis of its panel, and its check
    "accuracy": ("(a) Accuracy", "test accuracy", ""),
    "max_growth": ("(b) Growth of states", "largest growth of\n$\\|h_l\\|$ in one block", "scale"),
    "grad_norm_last": ("(c) Reference gradient", "median $\\|g_L\\|$", "reference"),
    "margin": ("(d) D3: Depth", "accuracy above own\nfrozen baseline (points)", "depth"),
}


@style.styled
def depth_sweep(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """What the audit measures in networks of different depth (number of blocks). (a) Accuracy on
    the whole test set. (b) D1: largest growth of the median state norm in one block. (c) D2: median
    norm of the batch-mean loss's gradient at the last state. (d) D3: accuracy minus that of the
    run's own frozen baseline with the same depth and seed, in percentage points. A check fires
    in the shaded part of its panel. A marker is one seed, a line the mean over n seeds (n is a
    range if some seeds are missing).

    Raises:
        AuditError: two settings have the same depth.
    """
    for depth, settings in tidy.runs.groupby("depth")["setting"].unique().items():
        if len(settings) > 1:
            found = f"{', '.join(settings)} all have depth {depth}"
            raise AuditError(f"depth_sweep: {found}; expected settings that differ in depth.")
    runs = tidy.runs.assign(margin=100 * tidy.runs["margin"])
    groups = by_run(runs, rank_runs(runs), "depth", "seed")
    figure = style.new_figure(title, height=4.2)
    for ax, (column, (heading, name, check)) in zip(figure.subplots(2, 2).flat, _PANELS.items()):
        if check in ("scale", "reference"):
            style.log_scale(ax)
        style.seeds_and_means(ax, groups, "depth", column)
        if check:
            style.limit_line(ax, check, thresholds)
        else:
            style.percent_scale(ax)
        ax.set(title=heading, ylabel=name, xlabel="number of blocks $L$")
        ax.set_xticks(np.unique(tidy.runs["depth"]))
    style.legend_below(figure, style.mean_entries(groups, labels, list(_PANELS), "depth"))
    return figure
