"""Intervals against brute force: exact distributions, explicit loops, simulated test sets and seeds."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fa_audit.core.intervals import (
    bootstrap_medians,
    jackknife_interval,
    largest_growth,
    paired_difference,
    percentile_interval,
    seeds_to_settle,
    student_t,
    t_interval,
    unpaired_difference,
)

RANDOM = np.random.default_rng(7)


def test_the_bootstrap_of_a_median_has_its_exact_distribution():
    """The lower median of a resample is at most the k-th smallest if at least half of the draws are."""
    norms = np.sort(RANDOM.lognormal(size=128))
    cumulative = stats.binom.sf(63, 128, np.arange(1, 129) / 128)  # 64 of 128 draws
    low, high = percentile_interval(bootstrap_medians(norms[None])[:, 0], norms[63])
    reached = cumulative[np.searchsorted(norms, (low, high))]
    assert reached == pytest.approx((0.025, 0.975), abs=0.06) and low < norms[63] < high


def test_growth_takes_the_same_samples_above_and_below_and_the_largest_block():
    first = RANDOM.lognormal(sigma=2, size=(1, 99))
    medians = bootstrap_medians(np.concatenate([first, 3 * first, 6 * first]))  # their ratios do not vary
    assert np.ptp(medians[:, 0]) > 0
    assert percentile_interval(largest_growth(medians), 3.0) == pytest.approx((3.0, 3.0))
    assert largest_growth(np.array([2.0, 0.0, 5.0])) == math.inf
    assert percentile_interval(np.array([1.0, math.nan]), 1.0) is None
    assert percentile_interval(np.array([2.0, 3.0]), 1.0)[0] == 1.0


def test_the_jackknife_leaves_out_one_batch_at_a_time():
    units = RANDOM.normal(size=(9, 5)) + 0.5
    units /= np.linalg.norm(units, axis=1, keepdims=True)

    def mean_of(kept):
        return np.mean([units[a] @ units[b] for a, b in itertools.combinations(kept, 2)])

    without = [mean_of([k for k in range(9) if k != out]) for out in range(9)]
    half = stats.t.ppf(0.975, 8) * math.sqrt(8 / 9 * np.sum((without - np.mean(without)) ** 2))
    low, high = jackknife_interval(units @ units.T)
    assert (low, high) == pytest.approx((mean_of(range(9)) - half, mean_of(range(9)) + half))
    assert jackknife_interval(np.eye(7)) is None


def test_differences_of_accuracies_are_covered_by_their_intervals():
    """In 95 % of simulated test sets, of independent networks and of two that err on the same images."""
    n, covered = 360, np.zeros((2, 400))
    for trial in range(400):
        first, second = RANDOM.random((2, n)) < [[0.95], [0.90]]
        same = RANDOM.choice(3, size=n, p=[0.09, 0.04, 0.87])  # only the first is right, only the second, both or none
        alone = (same == 0).sum(), (same == 1).sum()
        intervals = unpaired_difference(first.mean(), second.mean(), n), paired_difference(*alone, n)
        covered[:, trial] = [low < 0.05 < high for low, high in intervals]
    assert (abs(covered.mean(axis=1) - 0.95) < 0.035).all()
    assert np.ptp(paired_difference(18, 0, n)) < 0.7 * np.ptp(unpaired_difference(0.95, 0.90, n))


def test_intervals_over_seeds_and_how_many_would_settle_them():
    assert [student_t(n) for n in (1, 2, 7, 60)] == pytest.approx([stats.t.ppf(0.975, n) for n in (1, 2, 7, 60)])
    values = [0.03, -0.01, 0.02, 0.01]
    assert t_interval(values) == pytest.approx(stats.t.interval(0.95, 3, np.mean(values), stats.sem(values)))
    n = seeds_to_settle(values)

    def half(count):
        return stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count)

    assert half(n) < np.mean(values) <= half(n - 1) and n > len(values)
    assert [seeds_to_settle(v) for v in ([1.0], [1.0, math.inf], [-1.0, 1.0], [1e-9, 1.0, -1.0])] == [None] * 4
