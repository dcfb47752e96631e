"""Statistics of samples and batches: medians, cosines, and their 95 % intervals.

Pure functions; vectors are rows ``(B, d)``. A `Measured` quantity that cannot be measured has a
reason, not a placeholder such as 0 or NaN. Both kinds of intervals (percentile bootstrap,
delete-one jackknife) follow Efron and Tibshirani 1993.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fa_audit.core.measured import Interval, Measured
from fa_audit.core.vectors import sample_norms, unit
from fa_audit.protocol.intervals import FEWEST, LOWER, UPPER, student_t

_RESAMPLES = 2000


# --- medians and cosines --------------------------------------------------------------------------


def median_ratio(rows: Tensor, others: Tensor) -> Measured:
    """Return the median over samples of ``||row|| / ||other||``, in float64, leaving out samples
    whose ratio is not finite, such as those with a zero row in `others`.

    >>> rows, others = torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    >>> median_ratio(rows, others)
    Measured(value=2.5, n=2, n_valid=1, reason='')
    """
    ratios = sample_norms(rows) / sample_norms(others)
    reason = "no sample where the ratio of the two norms is finite"
    return median_of(ratios, ratios.isfinite(), reason)


def median_of(values: Tensor, usable: Tensor, reason: str) -> Measured:
    """Return the median of the usable values ``(B,)``, or the reason if there is none."""
    n, n_valid = len(values), int(usable.sum())
    if n_valid == 0:
        return Measured(None, n, 0, reason)
    return Measured(values[usable].median().item(), n, n_valid)


def clamped_cosine(a: Tensor, b: Tensor) -> Measured:
    """Return the mean of torch's ``F.cosine_similarity`` (float32, norms clamped at 1e-8), as in
    published cosines.

    >>> clamped_cosine(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[2.0, 0.0], [1.0, 1.0]])).value
    0.5
    """
    # In float32 the cosine of long parallel vectors can exceed 1.
    value = F.cosine_similarity(a.float(), b.float(), dim=-1).mean().clamp(-1, 1)
    if not value.isfinite():
        return Measured(None, len(a), 0, "torch's cosine is not finite")
    return Measured(value.item(), len(a), len(a))


def mean_pairwise_cosine(directions: list[Tensor]) -> Measured:
    """Return the mean cosine over all pairs of vectors ``(d,)``, in float64.

    It is 1 if all point the same way, and near 0 if they are unrelated.

    >>> mean_pairwise_cosine([torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]), torch.tensor([-1.0, 0.0])]).value
    -0.3333333333333333
    """
    cosines = pairwise_cosines(directions)
    count, total = len(cosines), len(directions)
    if count < 2:
        reason = f"needs two batches with a finite, non-zero mean gradient; found {count}"
        return Measured(None, total, count, reason)
    mean = ((cosines.sum() - cosines.trace()) / (count * (count - 1))).item()
    return Measured(mean, total, count)


def pairwise_cosines(directions: list[Tensor]) -> Tensor:
    """Return the cosines ``(K, K)`` of the K vectors ``(d,)`` that are finite and not zero."""
    if not directions:
        return torch.empty(0, 0)
    rows, valid = unit(torch.stack(directions))
    return rows[valid] @ rows[valid].T


# --- intervals over samples -----------------------------------------------------------------------


def bootstrap_medians(rows: np.ndarray) -> np.ndarray:
    """Resample the columns of `rows` and return the medians of every row, ``(resamples, R)``.

    All rows use the same resamples, so that a ratio of two medians compares the same samples. As in
    torch, the median of an even number of samples is the lower of the two in the middle.

    Args:
        rows: ``(R, B)``: a row has one quantity of B samples.

    >>> bootstrap_medians(np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])).shape
    (2000, 2)
    """
    samples, randomness = rows.shape[1], np.random.default_rng(0)
    middle, medians = (samples - 1) // 2, []
    for _ in range(_RESAMPLES):
        drawn = rows[:, randomness.integers(samples, size=samples)]
        # np.partition places only the middle element, which is faster than sorting.
        medians.append(np.partition(drawn, middle, axis=1)[:, middle])
    return np.array(medians)


def largest_growth(medians: np.ndarray) -> np.ndarray:
    """Return the largest ratio of a median to the one before it, ``(..., S) -> (...)``.

    A ratio to 0 is infinite.

    >>> largest_growth(np.array([[1.0, 2.0, 8.0], [1.0, 3.0, 3.0]])).tolist()
    [4.0, 3.0]
    """
    before, after = medians[..., :-1], medians[..., 1:]
    # Without `np.where`, 0 / 0 would be NaN.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(before == 0, np.inf, after / before)
    largest: np.ndarray = ratios.max(axis=-1)
    return largest


def percentile_interval(draws: np.ndarray, value: float) -> Interval | None:
    """Return the interval of the middle 95 % of bootstrap draws; None if a number is NaN.

    `value` is the measured value. If it lies outside, as a maximum of many similar numbers can, the
    interval is widened to include it.

    >>> percentile_interval(np.arange(1.0, 1001.0), 500.0)
    (25.0, 975.0)
    """
    if math.isnan(value) or np.isnan(draws).any():
        return None
    low, high = np.quantile(draws, (LOWER, UPPER), method="inverted_cdf").tolist()
    return min(low, value), max(high, value)


# --- intervals over batches -----------------------------------------------------------------------


def jackknife_interval(cosines: np.ndarray) -> Interval | None:
    """Return the delete-one jackknife interval of the mean cosine over pairs of different batches,
    cut off at -1 and 1.

    ``mean ± t sqrt((K - 1) / K sum_k (m_k - mean of m)^2)``, where ``m_k`` is the mean without
    batch k and t has K - 1 degrees of freedom. None for fewer than `FEWEST` batches.

    Args:
        cosines: symmetric ``(K, K)``, of every pair of batches.

    >>> jackknife_interval(np.full((8, 8), 0.25))
    (0.25, 0.25)
    """
    count = len(cosines)
    if count < FEWEST:
        return None
    # Every batch's sum over pairs with other batches; `total` thus counts each pair twice.
    of_batch = cosines.sum(axis=1) - cosines.diagonal()
    total = of_batch.sum()
    without = (total - 2 * of_batch) / ((count - 1) * (count - 2))
    error = math.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    value, half = total / (count * (count - 1)), student_t(count - 1) * error
    return max(-1.0, float(value - half)), min(1.0, float(value + half))
