"""Metrics against numpy and closed forms, over sixty orders of magnitude."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fa_audit.audit.statistics import clamped_cosine, mean_pairwise_cosine
from fa_audit.core.vectors import cosine, growth, median_norm

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def pair():
    randomness = torch.Generator().manual_seed(21)
    a = torch.randn(9, 5, dtype=torch.float64, generator=randomness)
    return a, a + torch.randn(9, 5, dtype=torch.float64, generator=randomness)


def numpy_cosine(a, b):
    a, b = a.double().numpy(), b.double().numpy()
    return ((a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).mean()


def counted(measured):
    """A number with what it was taken over."""
    return measured.value, measured.n, measured.n_valid


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1.0, 1e8, 1e30])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_cosine_ignores_scale(pair, scale, dtype, tolerance):
    a, b = (rows.to(dtype) for rows in pair)
    expected = numpy_cosine(a, b)
    for one, other in ((a * scale, b), (a * scale, b * scale), (a * scale, b / scale)):
        assert counted(cosine(one, other)) == (pytest.approx(expected, abs=tolerance), 9, 9)
    assert cosine(-a * scale, a).value == pytest.approx(-1, abs=tolerance)


def test_cosine_is_a_mean_over_the_samples_that_have_a_direction(pair):
    a, b = torch.tensor([[1.0, 0.0], [0.0, 1000.0]]), torch.tensor([[1.0, 0.0], [1000.0, 0.0]])
    assert cosine(a, b).value == 0.5  # not that of the flattened rows
    a, b = (rows.clone() for rows in pair)
    a[0], b[1], a[2, 3], b[3, 0] = 0, 0, NAN, -INF
    assert counted(cosine(a, b)) == (pytest.approx(numpy_cosine(a[4:], b[4:])), 9, 5)
    for bad in (0.0, NAN, INF):
        measured = cosine(pair[0], torch.full_like(a, bad))
        assert counted(measured) == (None, 9, 0) and measured.reason


def test_clamped_cosine_is_torchs_and_suppresses_what_lies_below_its_floor(pair):
    a, b = pair
    for scale in (1.0, 1e-6, 1e-10):
        expected = F.cosine_similarity(a.float() * scale, b.float() * scale, dim=1).mean().item()
        assert clamped_cosine(a * scale, b * scale).value == pytest.approx(expected, rel=1e-6)
    honest = cosine(a * 1e-10, b).value
    assert clamped_cosine(a, b).value == pytest.approx(honest, abs=1e-6)
    assert 0 < clamped_cosine(a * 1e-10, b).value < 0.1 * honest
    assert clamped_cosine(torch.full((2, 3), NAN), torch.ones(2, 3)).value is None
    long = torch.randn(1, 2**20, generator=torch.Generator().manual_seed(0))
    assert F.cosine_similarity(long, long) > 1 and clamped_cosine(long, long).value == 1


def test_median_norm_is_numpys_lower_median_of_euclidean_norms(pair):
    a, _ = pair
    # Of an even number torch takes the lower of the two middle ones, as published values do.
    for count in (8, 9):
        expected = np.percentile(np.linalg.norm(a[:count].numpy(), axis=1), 50, method="lower")
        assert median_norm(a[:count]) == pytest.approx(expected, rel=1e-14)
    assert median_norm((a * 1e-30).float()) == pytest.approx(expected * 1e-30, rel=1e-6)
    assert np.isnan(median_norm(torch.tensor([[1.0], [NAN], [2.0]])))
    assert median_norm(torch.full((3, 2), -INF)) == INF


def test_mean_pairwise_cosine_closed_forms():
    e1, e2 = torch.eye(2, dtype=torch.float64)
    third = 2 * torch.pi / 3 * torch.arange(3, dtype=torch.float64)
    star = list(torch.stack([third.cos(), third.sin()], dim=1))
    cases = {1.0: [e1, 3 * e1, 1e-30 * e1], 0.0: [e1, e2], -0.5: star, 1 / 3: [e1, e1, e2]}
    for expected, directions in cases.items():
        measured, count = mean_pairwise_cosine(directions), len(directions)
        assert counted(measured) == (pytest.approx(expected, abs=1e-15), count, count)


def test_growth_is_the_ratio_of_neighbours():
    assert growth([1.0, 2.0, 1.0, 0.0, 3.0]) == [2.0, 0.5, 0.0, INF] and growth([5.0]) == []
    assert np.isnan(growth([NAN, 1.0, 1.0])[0])
