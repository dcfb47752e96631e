"""Evaluate the checks that a run's history can answer epoch by epoch: scale (D1) and reference
(D2).

A row is one state at one epoch, columns as in `fa_audit.training.trajectory.TRAJECTORY_COLUMNS`.
Missing values and NaN never fire. Source: Hao, Wan, Zhai 2026 (arXiv 2606.21126), training monitor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

Row = Mapping[str, Any]
GRADIENTS = {
    "D2": "grad_norm",
    "D2@1024": "grad_norm_1024",
}  # the column that decides, of the last state


def fired(check: str, states: Sequence[Row], limit: float) -> bool:
    """Return whether a check fires on the rows of one epoch: D1 above its limit in any block, D2
    below at the end.
    """
    if check == "D1":
        return any(row["growth"] > limit for row in states if row["growth"] is not None)
    norm = max(states, key=lambda row: row["layer"])[GRADIENTS[check]]
    return norm is not None and bool(norm < limit)


def all_fire(checks: Collection[str], outcomes: Mapping[str, Any]) -> bool:
    """Return whether all of the checks on which a training stops fire; never without checks."""
    return bool(checks) and all(outcomes[check] for check in checks)


def should_stop(monitor: Iterable[tuple[str, float]], history: Sequence[Row]) -> bool:
    """Return whether all checks of a monitor, given with their limits, fire at the last epoch;
    never without epochs.
    """
    limits, last = dict(monitor), max((row["epoch"] for row in history), default=None)
    states = [row for row in history if row["epoch"] == last]
    return bool(states) and all_fire(
        limits, {check: fired(check, states, limits[check]) for check in limits}
    )


def first_flags(
    trajectory: Iterable[Row], growth: float, reference: float
) -> dict[str, int | None]:
    """Return the first epochs at which the scale and the reference check fire; None where they
    never do.

    Args:
        growth, reference: the limits of D1 and D2.
    """
    rows = sorted(trajectory, key=lambda row: row["epoch"])
    epochs = [
        (epoch, list(states)) for epoch, states in groupby(rows, key=lambda row: row["epoch"])
    ]
    limits = {"scale": ("D1", growth), "reference": ("D2", reference)}
    return {
        f"first_{name}_flag": next(
            (epoch for epoch, states in epochs if fired(check, states, limit)), None
        )
        for name, (check, limit) in limits.items()
    }
