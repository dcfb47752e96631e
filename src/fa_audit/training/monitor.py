"""Evaluate the checks that a run's history can answer epoch by epoch: scale (D1) and reference (D2).

A row is one state at one epoch, columns as in `fa_audit.training.trajectory.TRAJECTORY_COLUMNS`. Missing values and NaN
never fire. Source: Hao, Wan, Zhai 2026 (arXiv 2606.21126), training monitor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from fa_audit.core.thresholds import DiagnosticThresholds, fires

Row = Mapping[str, Any]


def scale_fires(states: Sequence[Row], limit: float) -> bool:
    """Check D1 on the rows of one epoch: some block multiplies the median norm of its state by more than `limit`."""
    return any(fires("growth", row["growth"], limit) for row in states if row["growth"] is not None)


def reference_fires(states: Sequence[Row], limit: float, column: str = "grad_norm") -> bool:
    """Check D2 on the rows of one epoch: the median norm of the gradient at the last state is below `limit`."""
    return fires("reference", max(states, key=lambda row: row["layer"])[column], limit)


MONITORS: dict[str, Callable[[Sequence[Row], float], bool]] = {
    "D1": scale_fires,
    "D2": reference_fires,
    "D2@1024": partial(reference_fires, column="grad_norm_1024"),
}


def all_fire(checks: Collection[str], fires: Mapping[str, Any]) -> bool:
    """Return whether all of the checks on which a training stops fire; never without checks."""
    return bool(checks) and all(fires[check] for check in checks)


def should_stop(monitor: Iterable[tuple[str, float]], history: Sequence[Row]) -> bool:
    """Return whether all checks of a monitor fire at the last epoch of a history; never without epochs.

    Args:
        monitor: checks and their limits.
    """
    limits = dict(monitor)
    last = max((row["epoch"] for row in history), default=None)
    states = [row for row in history if row["epoch"] == last]
    return bool(states) and all_fire(limits, {check: MONITORS[check](states, limits[check]) for check in limits})


def first_flags(trajectory: Iterable[Row], thresholds: DiagnosticThresholds) -> dict[str, int | None]:
    """Return the first epochs at which the scale and the reference check fire; None where they never do."""
    rows = sorted(trajectory, key=lambda row: (row["epoch"], row["layer"]))
    epochs = [(epoch, list(states)) for epoch, states in groupby(rows, key=lambda row: row["epoch"])]
    scale = (epoch for epoch, states in epochs if scale_fires(states, thresholds.h_norm_explosion_ratio))
    collapse = (epoch for epoch, states in epochs if reference_fires(states, thresholds.g_norm_floor))
    return {"first_scale_flag": next(scale, None), "first_reference_flag": next(collapse, None)}
