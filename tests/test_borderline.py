"""Uncertainty of an audit: its intervals by brute force, what it says where one contains a limit,
and over seeds.
"""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from drawing import drawn, lines
from made_up_runs import network as row_of
from made_up_runs import tidy_of
from networks import states_and_gradients
from scipy import stats
from test_protocol import batches, network, report_of

from fa_audit import diagnose
from fa_audit.core.errors import AuditError
from fa_audit.protocol.evidence import Stability
from fa_audit.protocol.intervals import paired_difference, seeds_to_settle, unpaired_difference
from fa_audit.protocol.judge import FOUR, THREE
from fa_audit.protocol.sentences import sentences
from fa_audit.results.tidy import judged

ENDS = (2.5, 97.5)


def norms_of(vectors):
    return vectors.detach().double().norm(dim=1).numpy()


def test_intervals_over_samples_are_those_of_brute_force():
    model, [batch] = network(), batches(1, size=128)
    checks = diagnose(model, [batch], None).checks
    states, gradients = states_and_gradients(model, *batch)
    draws = np.random.default_rng(5).integers(128, size=(5000, 128))
    medians = np.median(np.array([norms_of(h) for h in states])[:, draws], axis=2)
    growth = np.percentile((medians[1:] / medians[:-1]).max(axis=0), ENDS)
    assert checks["scale"].interval == pytest.approx(growth, rel=0.01)
    slopes = np.percentile(np.median(norms_of(gradients[-1])[draws], axis=1), ENDS)
    assert checks["reference"].interval == pytest.approx(slopes, rel=0.05)

    [few] = batches(1, size=20)
    ordered = np.sort(norms_of(states_and_gradients(model, *few)[1][-1]))
    # The rank of a resample's median, its tenth value, is binomial.
    at_most = stats.binom.sf(9, 20, np.arange(1, 21) / 20)
    exact = ordered[np.searchsorted(at_most, [end / 100 for end in ENDS])]
    assert diagnose(model, [few], None).checks["reference"].interval == pytest.approx(exact)


def test_the_interval_over_batches_is_the_jackknife_s():
    model, data = network(), batches(9)
    found = diagnose(model, data, None).checks["stability"]
    means = [states_and_gradients(model, *batch)[1][2].double().mean(dim=0) for batch in data]
    without = []
    for out in range(9):
        pairs = itertools.combinations(means[:out] + means[out + 1 :], 2)
        without.append(np.mean([torch.cosine_similarity(*pair, dim=0) for pair in pairs]))
    half = stats.t.ppf(0.975, 8) * math.sqrt(8 / 9 * np.sum((without - np.mean(without)) ** 2))
    ends = np.clip([found.value - half, found.value + half], -1, 1)
    assert found.interval == pytest.approx(ends, abs=1e-5)


def test_differences_of_accuracies_are_covered_by_their_intervals():
    random, covered = np.random.default_rng(7), []
    for _ in range(400):
        first, second = random.random((2, 360)) < [[0.95], [0.90]]
        alone = np.bincount(random.choice(3, size=360, p=[0.09, 0.04, 0.87]), minlength=3)[:2]
        unpaired = unpaired_difference(first.mean(), second.mean(), 360)
        intervals = (unpaired, paired_difference(*alone, 360))
        covered.append([low < 0.05 < high for low, high in intervals])
    assert (abs(np.mean(covered, axis=0) - 0.95) < 0.035).all()


def test_a_borderline_verdict_stays_and_is_called_so_in_texts_and_in_json():
    values = {"value": 0.4, "n": 10, "n_valid": 10, "layer": 1, "jackknife": (0.25, 0.55)}
    report = report_of().replace(stability=Stability(**values))
    found = report.judgement
    assert report.verdict == "needs walk-back (C)" and report.borderline == ["C"]
    assert (found.text(THREE), found.text(FOUR)) == ("PASS", "needs walk-back (C) (borderline)")
    may, may_not = sentences(found)
    assert "C is borderline" in " ".join(may_not)
    assert any(text.startswith("C: mean cosine") and "0.3" in text for text in may)
    told = {"checks": ["C"], "three_check": False, "four_check": True}
    assert report.to_dict()["borderline"] == told
    # A growth of ten times its limit: this walk-back stands.
    clear = report_of(growth=500.0).replace(stability=Stability(**values))
    assert clear.checks["scale"].distance == pytest.approx(-1) and clear.borderline == ["C"]
    assert clear.judgement.text(FOUR) == "needs walk-back (D1, C)"


def test_pairs_narrow_the_margin_and_must_be_those_of_the_accuracies():
    def depth(**given):
        return diagnose(network(), batches(), 0.60, 0.55, **given).judgement["depth"]

    own, frozen = np.arange(400) < 240, np.arange(400) < 220
    paired, unpaired = depth(paired_hits=(own, frozen)), depth(test_samples=400)
    error = 1.96 * math.sqrt((0.60 * 0.40 + 0.55 * 0.45) / 400)
    assert unpaired.interval == pytest.approx((0.05 - error, 0.05 + error), abs=2e-3)
    assert np.ptp(paired.interval) < 0.5 * np.ptp(unpaired.interval)
    assert unpaired.borderline and not paired.borderline
    samples = sum(len(labels) for _, labels in batches())
    assert depth().interval == depth(test_samples=samples).interval
    assert depth(test_samples=np.int64(samples)).interval == depth().interval
    # A loss that is not recognised as a cross-entropy, too.
    given = {"loss_fn": lambda logits, labels: F.cross_entropy(logits, labels)}
    assert depth(**given).interval == depth(test_samples=samples).interval
    for name, wrong in (("paired_hits", (own, own)), ("paired_hits", 3), ("test_samples", 0.5)):
        with pytest.raises(AuditError, match=f"{name}: .*; expected"):
            depth(**{name: wrong})


def seeds_of_bp(*distances):
    """Networks of one run, healthy but for the distance of their stability from its limit."""
    rows = []
    for seed, far in enumerate(distances):
        stability = {"stability": 0.3 - far, "stability_distance": far}
        stability |= {"stability_interval_low": 0.2 - far, "stability_interval_high": 0.4 - far}
        stability |= {"stability_borderline": True, "max_growth": 2.0 + seed}
        rows.append(row_of("bp", seed=seed, fires="c" if far < 0 else "", **stability))
    return tidy_of(rows)


def test_one_verdict_stands_for_all_seeds_and_says_how_many_would_settle_it():
    far = (0.05, -0.03, 0.06)
    half = [stats.t.ppf(0.975, n - 1) * np.std(far, ddof=1) / math.sqrt(n) for n in (3, 15, 16)]
    assert half[2] < np.mean(far) < half[1] and seeds_to_settle(far) == 16
    assert seeds_to_settle([1e-9, 1.0, -1.0]) is seeds_to_settle([1.0]) is None
    tidy = seeds_of_bp(*far)
    found = judged(tidy.runs)
    assert found.text(FOUR) == "trustworthy 2/3 (borderline)"
    assert found.settling == "C borderline; 16 seeds in all would settle it"
    low, _ = found["stability"].around
    assert low == pytest.approx(np.mean(far) - half[0])
    overview = drawn("audit_overview", tidy).axes[2]
    assert len(np.concatenate(lines(overview, "borderline"))) == 3
    assert len(lines(overview, "interval")) == 3
    panels = drawn("threshold_sensitivity", tidy).axes
    assert [len(lines(ax, "bp: borderline")) for ax in panels] == [0, 0, 1, 0]
    clear = judged(seeds_of_bp(-0.05, -0.06, -0.04).runs)
    assert clear.text(FOUR) == "needs walk-back (C) 3/3" and clear["stability"].around[1] < 0
