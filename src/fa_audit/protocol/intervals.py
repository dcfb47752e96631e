"""95 % intervals of accuracies and of means over seeds; for norms see `fa_audit.audit.statistics`.

Imports no numpy or torch. Sources: Wilson 1927; Newcombe 1998 (method 10); Bonett and Price 2012
(paired proportions); Abramowitz and Stegun 26.7.3 and 26.7.4 (Student's t).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

from fa_audit.core.measured import Interval

LOWER, UPPER = 0.025, 0.975  # quantiles at the ends of a two-sided 95 % interval
Z = NormalDist().inv_cdf(UPPER)
FEWEST = 8  # samples or batches for an interval
MOST_SEEDS = 1000


# --- over test images -----------------------------------------------------------------------------


def wilson(fraction: float, samples: int) -> Interval:
    """Return Wilson's score interval of a fraction of independent samples.

    >>> [round(end, 3) for end in wilson(0.5, 100)]
    [0.404, 0.596]
    """
    centre = fraction + Z**2 / (2 * samples)
    half = Z * math.sqrt(fraction * (1 - fraction) / samples + (Z / (2 * samples)) ** 2)
    return (centre - half) / (1 + Z**2 / samples), (centre + half) / (1 + Z**2 / samples)


def unpaired_difference(first: float, second: float, samples: int) -> Interval:
    """Return Newcombe's interval of the difference of two accuracies, each on `samples` samples,
    taken as independent.

    Networks that were tested on the same samples mostly err on the same ones: the paired interval
    is narrower.

    >>> [round(end, 3) for end in unpaired_difference(0.61, 0.39, 10_000)]
    [0.206, 0.233]
    """
    (low, high), (other_low, other_high) = wilson(first, samples), wilson(second, samples)
    difference = first - second
    below = math.hypot(first - low, other_high - second)
    return difference - below, difference + math.hypot(high - first, second - other_low)


def paired_difference(first_alone: int, second_alone: int, samples: int) -> Interval:
    """Return Bonett and Price's interval of the difference of two accuracies on the same samples.

    Args:
        first_alone, second_alone: samples that only the first, or only the second network
            classifies correctly.

    >>> [round(end, 3) for end in paired_difference(30, 10, 1000)]
    [0.007, 0.033]
    """
    gain, loss = ((count + 1) / (samples + 2) for count in (first_alone, second_alone))
    half = Z * math.sqrt((gain + loss - (gain - loss) ** 2) / (samples + 2))
    return max(-1.0, gain - loss - half), min(1.0, gain - loss + half)


# --- over seeds -----------------------------------------------------------------------------------


def student_t(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution, by bisection of `_two_sided`.

    >>> round(student_t(2), 6), round(student_t(9), 6)
    (4.302653, 2.262157)
    """
    low, high = 0.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        if _two_sided(middle, degrees) < UPPER - LOWER:
            low = middle
        else:
            high = middle
    return high


def _two_sided(t: float, degrees: int) -> float:
    """Return the probability that Student's t lies between -t and t."""
    angle = math.atan(t / math.sqrt(degrees))
    # Abramowitz and Stegun have two series: one for odd `degrees`, which starts with `angle`, and
    # one for even.
    odd = degrees % 2
    term = total = math.cos(angle) if odd else 1.0
    for power in range(2 + odd, degrees, 2):
        term *= math.cos(angle) ** 2 * (power - 1) / power
        total += term
    if degrees == 1:
        total = 0.0
    series = math.sin(angle) * total
    return 2 / math.pi * (angle + series) if odd else series


def t_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % t-interval of the mean of independent values.

    None for a single value, or if a value is not finite.

    >>> [round(end, 3) for end in t_interval([0.50, 0.52, 0.54])]
    [0.47, 0.57]
    """
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    mean, half = fmean(values), student_t(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def seeds_to_settle(values: Sequence[float]) -> int | None:
    """Return the number of seeds with which the t-interval would exclude 0, at this mean and
    deviation.

    None if that is unknown (a single value, a value that is not finite, a mean of 0) or exceeds
    `MOST_SEEDS`.

    >>> seeds_to_settle([0.02, -0.01, 0.03]), seeds_to_settle([0.02, 0.021, 0.019])
    (12, 3)
    """
    if t_interval(values) is None or fmean(values) == 0:
        return None
    mean, deviation = abs(fmean(values)), stdev(values)
    # Student's t exceeds the normal quantile, so fewer seeds than `lowest` never suffice.
    lowest = math.floor((Z * deviation / mean) ** 2)
    for count in range(max(len(values), lowest), MOST_SEEDS + 1):
        if student_t(count - 1) * deviation < mean * math.sqrt(count):
            return count
    return None
