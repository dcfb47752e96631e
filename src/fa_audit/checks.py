"""When a number makes a check fire: the one place that says so, for one network as for the tables of many.

Imports no torch, so that figures and tables can ask, too.
"""

from __future__ import annotations

from typing import Any

# Names as in `Thresholds`; the side of the limit on which a value makes the check fire.
SIDES = {"growth": "above", "reference": "below", "stability": "above", "depth_margin": "below"}


def fires(check: str, value: Any, limit: Any) -> Any:
    """Whether a check fires: its value lies strictly on the wrong side of its limit. NaN fires nothing.

    Args:
        check: ``growth`` (a), ``reference`` (b), ``stability`` (c) or ``depth_margin`` (d), as in `Thresholds`.
        value, limit: numbers, or arrays of shapes that numpy broadcasts.
    """
    return value > limit if SIDES[check] == "above" else value < limit


def depth_margin(accuracy: Any, frozen: Any) -> Any:
    """Accuracy minus that of a frozen baseline, both fractions; numbers or Series.

    Rounded to nine digits: 0.36 - 0.34 is two points, whatever binary fractions make of it.
    """
    return round(accuracy - frozen, 9)
