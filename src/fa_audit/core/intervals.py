"""95 % intervals of what the checks decide on: over samples, batches, test images and seeds. Imports numpy alone.

Sources: Efron and Tibshirani 1993 (percentile bootstrap, delete-one jackknife); Wilson 1927; Newcombe 1998 (method 10);
Bonett and Price 2012 (paired proportions); Abramowitz and Stegun 26.7.3 and 26.7.4 (Student's t).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

import numpy as np

Interval = tuple[float, float]
LOWER, UPPER = 0.025, 0.975  # quantiles at the ends of a two-sided 95 % interval
Z = NormalDist().inv_cdf(UPPER)
RESAMPLES = 2000
FEWEST = 8  # samples or batches from which an interval is formed
MOST_SEEDS = 1000


# --- over samples --------------------------------------------------------------------------------------------------


def bootstrap_medians(rows: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Return medians of every row in resamples of the columns, shape ``(resamples, R)``.

    All rows are resampled alike, so that a ratio of two of them is that of the same samples. As torch's, the median of
    an even number of samples is the lower of the two in the middle.

    Args:
        rows: ``(R, B)``, one quantity of B samples a row.
        seed: of the draws: the same rows give the same numbers.

    >>> bootstrap_medians(np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]), resamples=2).shape
    (2, 2)
    """
    samples, randomness = rows.shape[1], np.random.default_rng(seed)
    order, middle, half = np.argsort(rows, axis=1), (samples - 1) // 2, 4 * math.isqrt(samples)
    first = max(0, middle - half)  # a median of a resample lies this far from the middle once in 1e13
    near = order[:, first : middle + half + 1]
    before = np.zeros((samples, len(rows)))
    np.put_along_axis(before, order[:, :first].T, 1.0, axis=0)
    places = []
    for _ in range(resamples):
        counts = np.bincount(randomness.integers(samples, size=samples), minlength=samples)
        up_to = (counts @ before)[:, None] + counts[near].cumsum(axis=1)
        places.append((up_to > middle).argmax(axis=1))
    return np.take_along_axis(np.take_along_axis(rows, near, axis=1), np.array(places).T, axis=1).T


def largest_growth(medians: np.ndarray) -> np.ndarray:
    """Return the largest ratio of a median to the one before it, ``(..., S) -> (...)``; infinite behind a 0.

    >>> largest_growth(np.array([[1.0, 2.0, 8.0], [1.0, 3.0, 3.0]])).tolist()
    [4.0, 3.0]
    """
    before, after = medians[..., :-1], medians[..., 1:]
    with np.errstate(invalid="ignore"):
        ratios = np.divide(after, before, out=np.full_like(after, np.inf), where=before != 0)
    return ratios.max(axis=-1)


def percentile_interval(draws: np.ndarray, value: float) -> Interval | None:
    """Return where the middle 95 % of bootstrap draws lie; None where a draw is NaN.

    The interval is widened to `value` where that lies outside, as a maximum over many equal blocks can.

    >>> percentile_interval(np.arange(1.0, 1001.0), 500.0)
    (25.0, 975.0)
    """
    if np.isnan(draws).any():
        return None
    low, high = np.quantile(draws, (LOWER, UPPER), method="inverted_cdf").tolist()
    return min(low, value), max(high, value)


# --- over batches --------------------------------------------------------------------------------------------------


def jackknife_interval(cosines: np.ndarray) -> Interval | None:
    """Return the delete-one jackknife interval of the mean over pairs of different batches, within -1..1.

    ``mean ± t sqrt((K - 1) / K sum_k (m_k - mean of m)^2)``, ``m_k`` the mean without batch k, t at K - 1 degrees of
    freedom; None for fewer than `FEWEST` batches.

    Args:
        cosines: symmetric ``(K, K)``, of every pair of batches.

    >>> jackknife_interval(np.full((8, 8), 0.25))
    (0.25, 0.25)
    """
    count = len(cosines)
    if count < FEWEST:
        return None
    of_batch = cosines.sum(axis=1) - cosines.diagonal()
    total = of_batch.sum()
    without = (total - 2 * of_batch) / ((count - 1) * (count - 2))
    error = math.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    value, half = total / (count * (count - 1)), student_t(count - 1) * error
    return max(-1.0, float(value - half)), min(1.0, float(value + half))


# --- over test images ----------------------------------------------------------------------------------------------


def wilson(fraction: float, samples: int) -> Interval:
    """Return Wilson's score interval of a fraction of independent samples.

    >>> [round(end, 3) for end in wilson(0.5, 100)]
    [0.404, 0.596]
    """
    centre = fraction + Z**2 / (2 * samples)
    half = Z * math.sqrt(fraction * (1 - fraction) / samples + (Z / (2 * samples)) ** 2)
    return (centre - half) / (1 + Z**2 / samples), (centre + half) / (1 + Z**2 / samples)


def unpaired_difference(first: float, second: float, samples: int) -> Interval:
    """Return Newcombe's interval of the difference of two accuracies, each of so many samples, taken as independent.

    Networks that were tested on the same samples mostly err on the same ones: the paired interval is then narrower.

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
        first_alone, second_alone: samples that only the first, or only the second network classifies correctly.

    >>> [round(end, 3) for end in paired_difference(30, 10, 1000)]
    [0.007, 0.033]
    """
    gain, loss = ((count + 1) / (samples + 2) for count in (first_alone, second_alone))
    half = Z * math.sqrt((gain + loss - (gain - loss) ** 2) / (samples + 2))
    return max(-1.0, gain - loss - half), min(1.0, gain - loss + half)


# --- over seeds ----------------------------------------------------------------------------------------------------


def student_t(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution: its closed form, inverted by bisection.

    >>> round(student_t(2), 6), round(student_t(9), 6)
    (4.302653, 2.262157)
    """
    low, high = 0.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _two_sided(middle, degrees) < UPPER - LOWER else (low, middle)
    return high


def _two_sided(t: float, degrees: int) -> float:
    """Return the probability of -t..t under Student's t distribution."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term = total = math.cos(angle) if odd else 1.0
    for power in range(2 + odd, degrees, 2):
        term *= math.cos(angle) ** 2 * (power - 1) / power
        total += term
    if odd:
        return 2 / math.pi * (angle + (math.sin(angle) * total if degrees > 1 else 0.0))
    return math.sin(angle) * total


def t_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % t-interval of the mean of independent values; None for one value, or one that is not finite.

    >>> [round(end, 3) for end in t_interval([0.50, 0.52, 0.54])]
    [0.47, 0.57]
    """
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    mean, half = fmean(values), student_t(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def seeds_to_settle(values: Sequence[float]) -> int | None:
    """Return how many seeds in all would take 0 out of the t-interval, if mean and deviation stayed as they are.

    None where that cannot be said (one value, a mean of 0, one that is not finite) or takes more than `MOST_SEEDS`.

    >>> seeds_to_settle([0.02, -0.01, 0.03]), seeds_to_settle([0.02, 0.021, 0.019])
    (12, 3)
    """
    if t_interval(values) is None or not (mean := abs(fmean(values))):
        return None
    deviation = stdev(values)
    lowest = max(len(values), math.floor((Z * deviation / mean) ** 2))  # t exceeds z: fewer never suffice
    enough = (n for n in range(lowest, MOST_SEEDS + 1) if student_t(n - 1) * deviation < mean * math.sqrt(n))
    return next(enough, None)
