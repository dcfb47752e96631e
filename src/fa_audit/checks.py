"""How the checks of an audit are called, and when a number makes one fire: the one place that says so.

For one network as for the tables of many. Imports no torch, so that figures and tables can ask, too.
"""

from __future__ import annotations

from typing import Any

LETTERS = {"scale": "D1 / (a)", "reference": "D2 / (b)", "stability": "(c)", "depth": "D3 / (d)",
           "depth_strict": "D3-strict"}  # fmt: skip
# The limit of each check, by its name in `Thresholds`.
LIMITS = {"scale": "growth", "reference": "reference", "stability": "stability", "depth": "depth_margin",
          "depth_strict": "depth_margin"}  # fmt: skip
# Names as in `Thresholds`; the side of the limit on which a value makes the check fire.
SIDES = {"growth": "above", "reference": "below", "stability": "above", "depth_margin": "below"}


def fires(check: str, value: Any, limit: Any) -> Any:
    """Whether a check fires: its value lies strictly on the wrong side of its limit. NaN fires nothing.

    Args:
        check: ``growth`` (a), ``reference`` (b), ``stability`` (c) or ``depth_margin`` (d), as in `Thresholds`.
        value, limit: numbers, or arrays of shapes that numpy broadcasts.
    """
    return value > limit if SIDES[check] == "above" else value < limit


def sign_of(check: str) -> str:
    """How a check compares its value with its limit where it fires, ``>`` or ``<``; its name is that in an audit."""
    return ">" if SIDES[LIMITS[check]] == "above" else "<"


def depth_margin(accuracy: Any, frozen: Any) -> Any:
    """Accuracy minus that of a frozen baseline, both fractions; numbers or Series.

    Rounded to nine digits: 0.36 - 0.34 is two points, whatever binary fractions make of it.
    """
    return round(accuracy - frozen, 9)
