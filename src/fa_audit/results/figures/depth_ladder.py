"""The depth-utility ladder: what each trained block adds, from the frozen network up to the whole one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fa_audit.core.errors import AuditError
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.experiments.spec import parse_run
from fa_audit.results.figures import lines, style
from fa_audit.results.statistics import by_run, rank_runs
from fa_audit.results.tidy import Tidy

HEIGHT = 2.84  # inches without the legend
SPREAD = 0.24  # of one rung: what the methods' points may spread over, so that equal accuracies do not cover each other


def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw test accuracy against the number of trained blocks: a point per seed, a line per method through the means.

    Raises:
        AuditError: the setting has no run of a ladder.
    """
    steps = rungs(tidy.runs)
    groups = by_run(steps, rank_runs(steps), "k", "seed")
    handles = lines.counted_handles(groups, labels, columns=["accuracy"], at="k")
    with style.context():
        figure = style.new_figure(title, height=HEIGHT + lines.legend_height(handles))
        ax, styles = figure.subplots(), style.run_styles(groups)
        for rank, (method, group) in enumerate(groups.items()):
            shift = SPREAD * ((rank + 0.5) / len(groups) - 0.5)
            _line(ax, group, styles[method], label=method, shift=shift)
        ax.set(xlabel="trained blocks from the top, k (0: all blocks frozen)", ylabel="test accuracy")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(axis="y", color="0.9", linewidth=0.5)
        style.percent_scale(ax)
        lines.legend_below(figure, handles)
        return style.freeze_layout(figure)


def rungs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return every measured rung of the ladders, as ``run, k, seed, accuracy``; the run is the ladder's highest.

    Rung k has the top k blocks trained: k = L is the plain run, 0 < k < L the run whose first L - k blocks stay at
    initialisation, and k = 0 the plain run's own frozen baseline. Runs with a penalty, with random targets or without
    blocks stand on no rung.

    Raises:
        AuditError: no run stands on a rung.
    """
    excluded = (runs["penalty"] > 0) | runs["random_targets"].astype(bool) | runs["shallow"].astype(bool)
    ladders = runs["run"].map(lambda run: str(replace(parse_run(run), frozen=0)))
    trained = runs[~excluded].assign(run=ladders, k=runs["depth"] - runs["frozen_blocks"])
    plain = trained[trained["frozen_blocks"] == 0]
    frozen = plain.assign(k=0, accuracy=plain["own_frozen_acc"])
    found = pd.concat([trained[trained["k"] > 0], frozen])[["run", "k", "seed", "accuracy"]].dropna()
    if found.empty:
        raise AuditError(
            f"depth_ladder: found {', '.join(sorted(set(runs['run'])))}; expected runs of a ladder, such as dfa and"
            " dfa+frozen1."
        )
    return found.sort_values(["run", "k", "seed"], ignore_index=True)


def _line(ax: Axes, steps: pd.DataFrame, look: style.RunStyle, *, label: str, shift: float) -> None:
    """Draw one method; `shift` moves it sideways, in rungs."""
    means = steps.groupby("k")["accuracy"].mean()
    means = means.reindex(range(means.index.max() + 1))  # no line over a rung that was not measured
    mean = look.options | {"linewidth": 1, "marker": "_", "markersize": 9, "label": f"{label} mean"}
    ax.plot(means.index + shift, means, **mean)
    seed = look.options | {"linestyle": "none", "markersize": 4, "markeredgewidth": 0, "label": label}
    ax.plot(steps["k"] + shift, steps["accuracy"], **seed)
