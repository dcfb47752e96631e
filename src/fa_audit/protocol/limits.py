"""The limits of the checks. docs/protocol.md has the source of each. Imports no torch."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fa_audit.core.errors import AuditError, shortened, unknown

FLOOR_SAMPLES = 128  # the batch size for which the paper's floor of D2 is meant


@dataclass(frozen=True)
class DiagnosticThresholds:
    """Limits of the checks; the first four, their names and values are the paper's.

    Attributes:
        h_norm_explosion_ratio: D1 fires above this ratio of median state norms across one block.
        g_norm_floor: D2 fires below this median ``||g_L||`` (gradient of the mean loss of 128
            samples; for other batches see `floor_for`).
        stability_drift_ceiling: C fires above this mean pairwise cosine between batches.
        frozen_acc_margin_pp: D3 fires below this accuracy margin over the frozen baseline, in
            percentage points.
        loss_saturation: below this product ``B * median||h_L|| * median||g_L||`` a small gradient
            comes from a saturated loss and not from an exploded state. Ours: healthy and exploded
            networks have 1 to 100, a network at 99 % accuracy has 1e-3 and less.

        Raises:
        AuditError: a limit is not a finite number, or is outside its quantity's range.
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
        """Return the limits by their names in configurations and in an audit's JSON; margins are
        fractions.
        """
        values = {name: getattr(self, field) for name, field in FIELDS.items()}
        return values | {"depth_margin": round(self.frozen_acc_margin_pp / 100, 12)}

    @classmethod
    def of(cls, limits: Mapping[str, float]) -> DiagnosticThresholds:
        """Build the thresholds from limits by their names in a configuration; others keep their
        defaults.

        >>> DiagnosticThresholds.of({"depth_margin": 0.05}).frozen_acc_margin_pp
        5.0
        """
        given = dict(limits)
        strange = sorted(given.keys() - FIELDS.keys())
        if strange:
            raise unknown("limit", strange[0], FIELDS, where="thresholds")
        if "depth_margin" in given:
            given["depth_margin"] = round(100 * given["depth_margin"], 10)
        return cls(**{FIELDS[name]: value for name, value in given.items()})


# The names of the limits in a configuration and an audit's JSON.
FIELDS = {
    "growth": "h_norm_explosion_ratio",
    "reference": "g_norm_floor",
    "stability": "stability_drift_ceiling",
    "depth_margin": "frozen_acc_margin_pp",
    "saturation": "loss_saturation",
}
_RANGES = {
    "stability_drift_ceiling": (-1.0, 1.0, "a cosine from -1 to 1"),
    "frozen_acc_margin_pp": (-100.0, 100.0, "percentage points from -100 to 100"),
    "": (math.ulp(0.0), sys.float_info.max, "a finite number > 0"),
}


def _checked(name: str, value: Any) -> float:
    """Check a limit and return it as a float."""
    low, high, expected = _RANGES.get(name, _RANGES[""])
    try:
        limit = float(value)
    except (TypeError, ValueError):
        limit = math.nan
    if isinstance(value, bool | str) or not low <= limit <= high:
        raise AuditError(f"thresholds: {name}: found {shortened(value)}; expected {expected}.")
    return limit


def floor_for(reference: float, samples: int) -> float:
    """Scale the limit of D2 from 128 samples to another number: a mean loss's gradient scales as 1
    / B.

    >>> floor_for(1e-7, 128), floor_for(1e-7, 32)
    (1e-07, 4e-07)
    """
    return reference * (FLOOR_SAMPLES / samples)


def depth_margin(accuracy: Any, frozen: Any) -> Any:
    """Return accuracy minus the frozen baseline's, both fractions; numbers or Series.

    Rounded to nine digits: 0.36 - 0.34 is two points, whatever binary fractions make of it.

    >>> depth_margin(0.36, 0.34), 0.36 - 0.34
    (0.02, 0.019999999999999962)
    """
    return round(accuracy - frozen, 9)
