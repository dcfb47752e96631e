"""Evaluate D1 and D2 on the history of a training, epoch by epoch.

A row is one state at one epoch, columns as in `fa_audit.training.trajectory.TRAJECTORY_COLUMNS`.
Missing values and NaN never fire. Source: Hao, Wan, Zhai 2026 (arXiv 2606.21126), training monitor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
# The column that each version of D2 reads in the row of the last state.
_GRADIENTS = {"D2": "grad_norm", "D2@1024": "grad_norm_1024"}


def fired(check: str, states: Sequence[Row], limit: float) -> bool:
    """Return whether a check fires in the epoch of `states`: D1 in any block, D2 at ``h_L``."""
    if check == "D1":
        return any(row["growth"] > limit for row in states if row["growth"] is not None)
    last = max(states, key=lambda row: row["layer"])
    norm = last[_GRADIENTS[check]]
    return norm is not None and bool(norm < limit)


def should_stop(monitor: Iterable[tuple[str, float]], history: Sequence[Row]) -> bool:
    """Return whether all checks of `monitor` fire in the last epoch of `history`.

    Return False if there are no checks or no epochs.
    """
    limits, epochs = dict(monitor), _by_epoch(history)
    if not limits or not epochs:
        return False
    states = epochs[max(epochs)]
    return all(fired(check, states, limit) for check, limit in limits.items())


def first_flags(
    trajectory: Iterable[Row], growth: float, reference: float
) -> dict[str, int | None]:
    """Return the first epochs in which D1 (scale) and D2 (reference) fire, or None for never.

    Args:
        growth, reference: the limits of D1 and D2.
    """
    flags: dict[str, int | None] = {"first_scale_flag": None, "first_reference_flag": None}
    for epoch, states in sorted(_by_epoch(trajectory).items(), reverse=True):
        if fired("D1", states, growth):
            flags["first_scale_flag"] = epoch
        if fired("D2", states, reference):
            flags["first_reference_flag"] = epoch
    return flags


def _by_epoch(rows: Iterable[Row]) -> dict[int, list[Row]]:
    epochs: dict[int, list[Row]] = {}
    for row in rows:
        epochs.setdefault(row["epoch"], []).append(row)
    return epochs
