"""What the tidy tables say about the four checks: the number each decides on, and which of them a verdict names."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from fa_audit.core.thresholds import depth_margin

CHECKS = {
    "a": "growth",
    "b": "reference",
    "c": "stability",
    "d": "depth_margin",
}  # letter -> threshold


def deciding_values(runs: pd.DataFrame) -> pd.DataFrame:
    """The number that each check decides on, columns as in `CHECKS`; NaN where the check was not evaluated.

    Growth is a ratio, the reference a norm, stability a cosine, the depth margin a fraction.
    """
    gradient = runs["grad_norm_last"].astype(float)
    return pd.DataFrame(
        {
            "growth": runs["max_growth"].astype(float),
            "reference": gradient.where(np.isfinite(gradient)),
            "stability": runs["stability"].astype(float),
            "depth_margin": depth_margin(runs["accuracy"].astype(float), runs["own_frozen_acc"].astype(float)),
        }
    )


def named(four_check: object) -> tuple[str, ...]:
    """The reasons that a four-check verdict names: letters of checks and ``non-finite``; none unless it walks back.

    ``needs walk-back (a, d)`` gives ``("a", "d")``; ``trustworthy``, ``incomplete (...)`` and a missing verdict none.
    """
    found = re.fullmatch(r"needs walk-back \((.+)\)", str(four_check))
    return tuple(found[1].split(", ")) if found else ()
