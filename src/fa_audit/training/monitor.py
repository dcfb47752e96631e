"""Evaluate the checks that a run's history can answer epoch by epoch: scale (D1) and reference (D2).

A row is one state at one epoch, columns as in `fa_audit.training.trajectory.TRAJECTORY_COLUMNS`. Missing values and NaN
never fire. Source: Hao, Wan, Zhai 2026 (arXiv 2606.21126), training monitor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from fa_audit.core.thresholds import DiagnosticThresholds, fires

Row = Mapping[str, Any]
# check -> its limit, and the column that decides: of any block for the growth, of the last state for the gradient
MONITORS = {"D1": ("growth", "growth"), "D2": ("reference", "grad_norm"), "D2@1024": ("reference", "grad_norm_1024")}


def fired(check: str, states: Sequence[Row], limit: float) -> bool:
    """Return whether a check fires on the rows of one epoch."""
    kind, column = MONITORS[check]
    deciding = states if kind == "growth" else [max(states, key=lambda row: row["layer"])]
    return any(fires(kind, row[column], limit) for row in deciding if row[column] is not None)


def all_fire(checks: Collection[str], outcomes: Mapping[str, Any]) -> bool:
    """Return whether all of the checks on which a training stops fire; never without checks."""
    return bool(checks) and all(outcomes[check] for check in checks)


def should_stop(monitor: Iterable[tuple[str, float]], history: Sequence[Row]) -> bool:
    """Return whether all checks of a monitor, given with their limits, fire at the last epoch; never without epochs."""
    limits, last = dict(monitor), max((row["epoch"] for row in history), default=None)
    states = [row for row in history if row["epoch"] == last]
    return bool(states) and all_fire(limits, {check: fired(check, states, limits[check]) for check in limits})


def first_flags(trajectory: Iterable[Row], thresholds: DiagnosticThresholds) -> dict[str, int | None]:
    """Return the first epochs at which the scale and the reference check fire; None where they never do."""
    rows = sorted(trajectory, key=lambda row: row["epoch"])
    epochs = [(epoch, list(states)) for epoch, states in groupby(rows, key=lambda row: row["epoch"])]
    limits = {"scale": ("D1", thresholds.h_norm_explosion_ratio), "reference": ("D2", thresholds.g_norm_floor)}
    return {
        f"first_{name}_flag": next((epoch for epoch, states in epochs if fired(check, states, limit)), None)
        for name, (check, limit) in limits.items()
    }
