"""The limits of the checks, and the only code that decides whether a value makes a check fire.

Used by audits, the training monitor, figures and tables alike. Imports no torch.
docs/protocol.md has the source of each limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from fa_audit.core.errors import AuditError, shortened, unknown
from fa_audit.protocol.checks import CHECKS, of_limit

FLOOR_SAMPLES = 128  # the batch size for which the paper's floor of D2 is meant


@dataclass(frozen=True)
class DiagnosticThresholds:
    """Limits of the checks; the first four, their names and values are the paper's.

    Attributes:
        h_norm_explosion_ratio: D1 / (a) fires above this ratio of median state norms across one
            block.
        g_norm_floor: D2 / (b) fires below this median ``||g_L||`` (gradient of the mean loss of 128
            samples; for other batches see `floor_for`).
        stability_drift_ceiling: (c) fires above this mean pairwise cosine between batches.
        frozen_acc_margin_pp: D3 / (d) fires below this accuracy margin over the frozen baseline, in
            percentage points.
        loss_saturation: below this per-sample product ``B * median||h_L|| * median||g_L||`` a small
            gradient comes from a saturated loss and not from an exploded state. Ours: healthy and
            exploded networks have 1 to 100, a network at 99 % accuracy at 1e-3 and below.

    Raises:
        AuditError: a limit is not a number, not finite, or outside the range of what it limits.
    """

    h_norm_explosion_ratio: float = 50.0
    g_norm_floor: float = 1e-7
    stability_drift_ceiling: float = 0.30
    frozen_acc_margin_pp: float = 2.0
    loss_saturation: float = 1e-2

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _checked(field.name, getattr(self, field.name)))

    @property
    def limits(self) -> dict[str, float]:
        """Return the limits by their names in a configuration and an audit's JSON, the margin as a
        fraction.
        """
        values = _without_field() | {name: getattr(self, field) for name, field in FIELDS.items()}
        return values | {"depth_margin": round(self.frozen_acc_margin_pp / 100, 12)}

    @classmethod
    def of(cls, limits: Mapping[str, float]) -> DiagnosticThresholds:
        """Build the thresholds from `limits`; those that are absent have their defaults.

        >>> DiagnosticThresholds.of({"depth_margin": 0.05}).frozen_acc_margin_pp
        5.0
        """
        own = _without_field()
        limits = {name: limit for name, limit in limits.items() if own.get(name) != limit}
        if strange := sorted(limits.keys() - FIELDS.keys()):
            raise unknown("limit", strange[0], FIELDS, where="thresholds")
        points = (
            {"depth_margin": round(100 * limits["depth_margin"], 10)}
            if "depth_margin" in limits
            else {}
        )
        return cls(**{FIELDS[name]: value for name, value in (dict(limits) | points).items()})


# The names of the limits in a configuration and an audit's JSON.
FIELDS = {"growth": "h_norm_explosion_ratio", "reference": "g_norm_floor", "stability": "stability_drift_ceiling",
          "depth_margin": "frozen_acc_margin_pp", "saturation": "loss_saturation"}  # fmt: skip
RANGES: dict[str, tuple[Callable[[float], bool], str]] = {  # by the unit of a check
    "factor": (lambda limit: 0 < limit < math.inf, "a finite number > 0"),
    "cosine": (lambda limit: -1 <= limit <= 1, "a cosine from -1 to 1"),
    "points": (lambda limit: -100 < limit < 100, "percentage points between -100 and 100"),
}


def _without_field() -> dict[str, float]:
    """Return the limits of checks for which `DiagnosticThresholds` has no field: always their
    defaults.
    """
    return {check.limit: check.default for check in CHECKS.values() if check.limit not in FIELDS}


def _checked(name: str, value: Any) -> float:
    """Return a limit as a plain float, if it is one."""
    units = {FIELDS[check.limit]: check.unit for check in CHECKS.values() if check.limit in FIELDS}
    fits, expected = RANGES[units.get(name, "factor")]
    try:
        limit = float(value)
    except (TypeError, ValueError):
        limit = math.nan
    if isinstance(value, bool | str) or not fits(limit):
        raise AuditError(f"thresholds: {name}: found {shortened(value)}; expected {expected}.")
    return limit


def floor_for(reference: float, samples: int) -> float:
    """Return the floor of D2 for batches of another size than 128: the gradient of a mean loss
    scales as 1 / B.

    >>> floor_for(1e-7, 128), floor_for(1e-7, 32)
    (1e-07, 4e-07)
    """
    return reference * (FLOOR_SAMPLES / samples)


def fires(check: str, value: Any, limit: Any) -> Any:
    """Return whether a check fires: its value is strictly on the wrong side of its limit. NaN never
    fires.

    >>> fires("growth", 51.0, 50.0), fires("depth_margin", 0.02, 0.02), fires("reference", float("nan"), 1e-7)
    (True, False, False)

    Args:
        check: its limit's name in `DiagnosticThresholds.limits`.
        value, limit: numbers, or arrays of shapes that numpy broadcasts.
    """
    return value > limit if of_limit(check).side == "above" else value < limit


def distance(check: str, value: float, limit: float) -> float:
    """Return the distance of a value from its limit: positive where the check does not fire,
    negative where it does.

    Growth and reference: the factor between both, in decades (``log10``); stability and depth
    margin: the difference.

    >>> distance("growth", 0.5, 50.0), distance("reference", 1e-9, 1e-7), distance("depth_margin", 0.5, 0.25)
    (2.0, -2.0, 0.25)
    """
    if value == limit:
        return 0.0
    found = of_limit(check)
    beyond = _decades(value) - _decades(limit) if found.unit == "factor" else value - limit
    return -beyond if found.side == "above" else beyond


def _decades(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf


def depth_margin(accuracy: Any, frozen: Any) -> Any:
    """Return accuracy minus the frozen baseline's, both fractions; numbers or Series.

    Rounded to nine digits: 0.36 - 0.34 is two points, whatever binary fractions make of it.

    >>> depth_margin(0.36, 0.34), 0.36 - 0.34
    (0.02, 0.019999999999999962)
    """
    return round(accuracy - frozen, 9)
