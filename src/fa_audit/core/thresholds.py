"""The limits of the checks, and the only code that decides whether a value makes a check fire.

Used by audits, the training monitor, figures and tables alike. Imports no torch.
docs/protocol.md says where each limit comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DiagnosticThresholds:
    """Limits of the checks; the first four are the paper's.

    Attributes:
        growth: D1 / (a) fires above this ratio of median state norms across one block.
        reference: D2 / (b) fires below this median ``||g_L||`` (gradient of the batch-mean loss).
        stability: (c) fires above this mean pairwise cosine between batches.
        depth_margin: D3 / (d) fires below this accuracy margin over the frozen baseline (fraction, 0.02 = 2 points).
        saturation: below this per-sample product ``B * median||h_L|| * median||g_L||`` a small gradient comes from
            a saturated loss and not from an exploded state. Ours: healthy and exploded networks lie at 1 to 100,
            a network at 99 % accuracy at 1e-3 and below.
    """

    growth: float = 50.0
    reference: float = 1e-7
    stability: float = 0.30
    depth_margin: float = 0.02
    saturation: float = 1e-2


NON_FINITE = "non-finite"  # in the place of a check that fired: a state, gradient or logit is NaN or infinite
CHECK_LABELS = {"scale": "D1 / (a)", "reference": "D2 / (b)", "stability": "(c)", "depth": "D3 / (d)",
                "depth_strict": "D3-strict"}  # fmt: skip
# The limit of each check, by its name in `DiagnosticThresholds`.
LIMITS = {"scale": "growth", "reference": "reference", "stability": "stability", "depth": "depth_margin",
          "depth_strict": "depth_margin"}  # fmt: skip
# Names as in `DiagnosticThresholds`; the side of the limit on which a check fires.
FIRES_WHEN = {"growth": "above", "reference": "below", "stability": "above", "depth_margin": "below"}


def fires(check: str, value: Any, limit: Any) -> Any:
    """Return whether a check fires: its value lies strictly on the wrong side of its limit. NaN never fires.

    >>> fires("growth", 51.0, 50.0), fires("depth_margin", 0.02, 0.02), fires("reference", float("nan"), 1e-7)
    (True, False, False)

    Args:
        check: ``growth`` (a), ``reference`` (b), ``stability`` (c) or ``depth_margin`` (d), as in
            `DiagnosticThresholds`.
        value, limit: numbers, or arrays of shapes that numpy broadcasts.
    """
    return value > limit if FIRES_WHEN[check] == "above" else value < limit


def sign_of(check: str) -> str:
    """Return ``>`` or ``<``: how a check, by its name in an audit, compares its value with its limit when it fires.

    >>> sign_of("scale"), sign_of("depth")
    ('>', '<')
    """
    return ">" if FIRES_WHEN[LIMITS[check]] == "above" else "<"


def depth_margin(accuracy: Any, frozen: Any) -> Any:
    """Return accuracy minus that of a frozen baseline, both fractions; numbers or Series.

    Rounded to nine digits: 0.36 - 0.34 is two points, whatever binary fractions make of it.

    >>> depth_margin(0.36, 0.34), 0.36 - 0.34
    (0.02, 0.019999999999999962)
    """
    return round(accuracy - frozen, 9)
