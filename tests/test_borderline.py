"""Uncertainty of an audit: its intervals by brute force, what it says where one contains a limit,
and over seeds.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from drawing import drawn
from drawing import lines as lines_of
from made_up_runs import cells, tidy_of
from made_up_runs import network as row_of
from networks import states_and_gradients
from scipy import stats
from test_protocol import batches, network, report_of

from fa_audit import diagnose
from fa_audit.core.errors import AuditError
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.evidence import Stability
from fa_audit.protocol.intervals import paired_difference, seeds_to_settle, unpaired_difference
from fa_audit.protocol.judge import FOUR, THREE
from fa_audit.protocol.sentences import sentences
from fa_audit.results.tables.audits import main_audit
from fa_audit.results.tidy import judged

ENDS = (2.5, 97.5)


def test_the_intervals_of_a_report_are_those_of_brute_force():
    model, data = network(), batches(9, size=128)
    report = diagnose(model, data, 0.61, 0.59, test_samples=400)
    checks = report.replace(hits=None).checks  # the network was not trained
    *hidden, slopes = (
        part.detach().double().norm(dim=1).numpy()
        for part in (
            *states_and_gradients(model, *data[0])[0],
            states_and_gradients(model, *data[0])[1][-1],
        )
    )
    draws = np.random.default_rng(5).integers(128, size=(5000, 128))
    medians = np.median(np.array(hidden)[:, draws], axis=2)
    growth = np.percentile((medians[1:] / medians[:-1]).max(axis=0), ENDS)
    assert checks["scale"].interval == pytest.approx(growth, rel=0.01)
    assert checks["reference"].interval == pytest.approx(
        np.percentile(np.median(slopes[draws], axis=1), ENDS), rel=0.05
    )

    [few] = batches(1, size=20)
    ordered = sorted(states_and_gradients(model, *few)[1][-1].double().norm(dim=1).tolist())
    at_most = stats.binom.sf(
        9, 20, np.arange(1, 21) / 20
    )  # for the rank of a resample's median, its tenth value
    exact = [ordered[np.searchsorted(at_most, end / 100)] for end in ENDS]
    assert diagnose(model, [few], None).checks["reference"].interval == pytest.approx(exact)

    means = [states_and_gradients(model, *batch)[1][2].double().mean(dim=0) for batch in data]
    cosines = {
        pair: torch.cosine_similarity(*pair, dim=0).item()
        for pair in itertools.combinations(means, 2)
    }
    without = [
        np.mean([cosines[pair] for pair in cosines if not any(m is out for m in pair)])
        for out in means
    ]
    half = stats.t.ppf(0.975, 8) * math.sqrt(8 / 9 * np.sum((without - np.mean(without)) ** 2))
    ends = checks["stability"].value - half, checks["stability"].value + half
    assert checks["stability"].interval == pytest.approx(np.clip(ends, -1, 1), abs=1e-5)
    error = 1.96 * math.sqrt((0.61 * 0.39 + 0.59 * 0.41) / 400)
    assert (
        checks["depth"].interval == pytest.approx((0.02 - error, 0.02 + error), abs=2e-3)
        and checks["depth"].borderline
    )


def test_differences_of_accuracies_are_covered_by_their_intervals():
    random, covered = np.random.default_rng(7), []
    for _ in range(400):
        first, second = random.random((2, 360)) < [[0.95], [0.90]]
        alone = np.bincount(random.choice(3, size=360, p=[0.09, 0.04, 0.87]), minlength=3)[:2]
        intervals = (
            unpaired_difference(first.mean(), second.mean(), 360),
            paired_difference(*alone, 360),
        )
        covered.append([low < 0.05 < high for low, high in intervals])
    assert (abs(np.mean(covered, axis=0) - 0.95) < 0.035).all()


def test_a_borderline_verdict_stays_and_is_called_so_in_texts_and_in_json(tmp_path):
    def report(**measured):
        found = report_of(stability=0.4, **measured)
        values = {"value": 0.4, "n": 10, "n_valid": 10, "layer": 1, "jackknife": (0.25, 0.55)}
        return found.replace(stability=Stability(**values))

    assert report().verdict == "needs walk-back (C)" and report().borderline == ["C"]
    found = report().judgement
    assert found.text(THREE) == "PASS" and found.quoted == "PASS, and C (borderline) fires"
    assert found.text(FOUR) == "needs walk-back (C) (borderline)" and found.text(FOUR) in str(
        report()
    )
    assert any("batches differ: C is borderline" in text for text in sentences(found)[1])
    report().write(tmp_path / "audit.json")
    again = Audit.read(tmp_path / "audit.json")
    assert again.judgement.to_dict() == report().judgement.to_dict()
    assert again.judgement["stability"].distance == pytest.approx(-0.1)
    assert report().to_dict()["borderline"] == {
        "checks": ["C"],
        "three_check": False,
        "four_check": True,
    }
    clear = report(growth=500.0)  # ten times the limit: this walk-back stands
    assert clear.checks["scale"].distance == pytest.approx(-1) and clear.borderline == ["C"]
    assert clear.judgement.text(FOUR) == "needs walk-back (D1, C)"


def test_pairs_narrow_the_margin_and_must_be_those_of_the_accuracies():
    own, frozen = np.arange(400) < 240, np.arange(400) < 220
    paired, unpaired, unknown = (
        diagnose(network(), batches(), 0.60, 0.55, **given).checks["depth"]
        for given in ({"paired_hits": (own, frozen)}, {"test_samples": 400}, {})
    )
    assert (
        np.ptp(paired.interval) < 0.5 * np.ptp(unpaired.interval)
        and unpaired.borderline
        and not paired.borderline
    )
    assert unknown.interval is None and "test_samples" in unknown.interval_note
    for name, wrong in (("paired_hits", (own, own)), ("paired_hits", 3), ("test_samples", 0.5)):
        with pytest.raises(AuditError, match=f"{name}: .*; expected"):
            diagnose(network(), batches(), 0.60, 0.55, **{name: wrong})


def seeds_of_bp(*distances):
    """Networks of one run, healthy but for the distance of their stability from its limit."""
    return tidy_of([
        row_of("bp", seed=seed, grad_norm_last=1e-3 + seed, max_growth=2.0 + seed, fires="c" if far < 0 else "",
               stability=0.3 - far, stability_distance=far, stability_interval_low=0.2 - far,
               stability_interval_high=0.4 - far, stability_borderline=True, four_check_borderline=True)
        for seed, far in enumerate(distances)
    ])  # fmt: skip


def test_one_verdict_stands_for_all_seeds_and_says_how_many_would_settle_it():
    far = (0.05, -0.03, 0.06)
    half = [stats.t.ppf(0.975, n - 1) * np.std(far, ddof=1) / math.sqrt(n) for n in (3, 15, 16)]
    assert (
        half[2] < np.mean(far) < half[1]
        and seeds_to_settle([1e-9, 1.0, -1.0]) is seeds_to_settle([1.0]) is None
    )
    table = main_audit(seeds_of_bp(*far), title="t", labels={})
    settled = "C borderline; 16 seeds would settle it"
    assert cells(table)[0]["four-check"] == f"trustworthy 2/3 (borderline); {settled}"
    assert table.values["C_low"].item() == pytest.approx(np.mean(far) - half[0])
    square = drawn("verdict_matrix", seeds_of_bp(*far)).axes[0].texts[0]
    assert square.get_text().splitlines() == ["pass", "C?", "n = 3"]
    stability = drawn("audit_overview", seeds_of_bp(*far)).axes[2]
    assert len(np.concatenate(lines_of(stability, "borderline"))) == 3
    assert len(lines_of(stability, "interval")) == 3
    panels = drawn("threshold_sensitivity", seeds_of_bp(*far)).axes
    assert [len(lines_of(ax, "bp: borderline")) for ax in panels] == [0, 0, 1, 0]
    clear = judged(seeds_of_bp(-0.05, -0.06, -0.04).runs)
    assert clear.text(FOUR) == "needs walk-back (C) 3/3" and clear["stability"].around[1] < 0
