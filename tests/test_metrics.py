"""Metrics against numpy and closed forms, over sixty orders of magnitude."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fa_audit.core.metrics import Measured, clamped_cosine, cosine, growth, mean_pairwise_cosine, median_norm, unit

SCALES = [10.0**power for power in range(-30, 31, 6)]


@pytest.fixture
def pair():
    randomness = torch.Generator().manual_seed(21)
    a = torch.randn(9, 5, dtype=torch.float64, generator=randomness)
    return a, a + torch.randn(9, 5, dtype=torch.float64, generator=randomness)


def numpy_cosine(a, b):
    a, b = a.double().numpy(), b.double().numpy()
    return ((a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).mean()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_cosine_ignores_scale(pair, scale, dtype):
    a, b = (rows.to(dtype) for rows in pair)
    expected = numpy_cosine(a, b)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    for one, other in ((a * scale, b), (a, b * scale), (a * scale, b * scale), (a * scale, b / scale)):
        assert cosine(one, other) == Measured(pytest.approx(expected, abs=tolerance), 9, 9)
    assert cosine(-a * scale, a).value == pytest.approx(-1, abs=tolerance)


def test_cosine_reaches_where_squares_under_and_overflow(pair):
    a, b = pair
    assert cosine(a * 1e-300, b * 1e300).value == pytest.approx(numpy_cosine(a, b), abs=1e-12)


def test_cosine_is_a_mean_over_samples_and_not_of_the_flattened_rows():
    a = torch.tensor([[1.0, 0.0], [0.0, 1000.0]])
    b = torch.tensor([[1.0, 0.0], [1000.0, 0.0]])
    assert cosine(a, b).value == 0.5


@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf")])
def test_cosine_without_a_direction_is_not_a_number_of_any_kind(pair, bad):
    a, _ = pair
    spoilt = torch.full_like(a, bad)
    for one, other in ((a, spoilt), (spoilt, a), (spoilt, spoilt)):
        measured = cosine(one, other)
        assert (measured.value, measured.n, measured.n_valid) == (None, 9, 0) and measured.reason
        assert measured.to_dict() == {"value": None, "n": 9, "n_valid": 0, "reason": measured.reason}


def test_cosine_counts_the_samples_it_could_use(pair):
    a, b = (rows.clone() for rows in pair)
    a[0], b[1], a[2, 3], b[3, 0] = 0, 0, float("nan"), float("-inf")
    assert cosine(a, b) == Measured(pytest.approx(numpy_cosine(a[4:], b[4:])), 9, 5)
    assert "reason" not in cosine(a, b).to_dict()


def test_unit_rows():
    rows, valid = unit(torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, -2e-38], [float("inf"), 1.0]]))
    assert valid.tolist() == [True, False, True, False] and rows.dtype == torch.float64
    torch.testing.assert_close(rows[valid], torch.tensor([[0.6, 0.8], [0.0, -1.0]], dtype=torch.float64))


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e-10])
def test_clamped_cosine_is_torchs(pair, scale):
    a, b = (rows.float() * scale for rows in pair)
    assert clamped_cosine(a, b).value == pytest.approx(F.cosine_similarity(a, b, dim=1).mean().item(), rel=1e-6)


def test_clamped_cosine_suppresses_what_lies_below_its_floor(pair):
    a, b = pair
    honest = cosine(a * 1e-10, b).value
    assert clamped_cosine(a, b).value == pytest.approx(honest, abs=1e-6)
    assert 0 < clamped_cosine(a * 1e-10, b).value < 0.1 * honest
    assert clamped_cosine(torch.full((2, 3), float("nan")), torch.ones(2, 3)).value is None


def test_median_norm_is_numpys(pair):
    a, _ = pair
    expected = np.median(np.linalg.norm(a.numpy(), axis=1))
    assert median_norm(a) == pytest.approx(expected, rel=1e-14)
    assert median_norm(a * 1e-30) == pytest.approx(expected * 1e-30, rel=1e-12)
    assert median_norm((a * 1e-30).float()) == pytest.approx(expected * 1e-30, rel=1e-6)


def test_median_norm_of_an_even_number_of_samples_is_a_middle_one(pair):
    """torch's median, as in published values: the lower of the two middle norms."""
    a, _ = pair
    norms = np.linalg.norm(a[:8].numpy(), axis=1)
    assert median_norm(a[:8]) == pytest.approx(np.percentile(norms, 50, method="lower"), rel=1e-14)


def test_median_norm_is_euclidean_along_features():
    assert median_norm(torch.tensor([[3.0, -4.0]])) == 5.0


def test_median_norm_passes_on_what_is_not_finite():
    assert np.isnan(median_norm(torch.tensor([[1.0], [float("nan")], [2.0]])))
    assert median_norm(torch.full((3, 2), float("-inf"))) == float("inf")


def test_mean_pairwise_cosine_closed_forms():
    e1, e2 = torch.eye(2, dtype=torch.float64)
    third = 2 * torch.pi / 3 * torch.arange(3, dtype=torch.float64)
    star = list(torch.stack([third.cos(), third.sin()], dim=1))
    cases = {1.0: [e1, 3 * e1, 1e-30 * e1], 0.0: [e1, e2], -1.0: [e1, -e1], -0.5: star, 1 / 3: [e1, e1, e2]}
    for expected, directions in cases.items():
        measured = mean_pairwise_cosine(directions)
        assert measured == Measured(pytest.approx(expected, abs=1e-15), len(directions), len(directions))


def test_mean_pairwise_cosine_needs_two_directions():
    e1, nothing, nan = torch.tensor([1.0, 0.0]), torch.zeros(2), torch.full((2,), float("nan"))
    for directions in ([], [e1], [e1, nothing], [nan, e1, nothing], [nothing, nothing]):
        measured = mean_pairwise_cosine(directions)
        assert measured.value is None and measured.reason and measured.n == len(directions)
    assert mean_pairwise_cosine([e1, nothing, e1, nan]) == Measured(1.0, 4, 2)


def test_growth_is_the_ratio_of_neighbours():
    assert growth([1.0, 2.0, 1.0]) == [2.0, 0.5]
    assert growth([0.0, 2.0]) == [float("inf")]
    assert growth([5.0]) == []
    assert np.isnan(growth([float("nan"), 1.0, 1.0])[0])
