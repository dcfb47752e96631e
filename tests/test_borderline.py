"""Uncertainty of an audit: its intervals by brute force, and what it says where one contains a limit."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from drawing import drawn
from drawing import lines as lines_of
from made_up_runs import cells, tidy_of
from made_up_runs import network as network_row
from scipy import stats
from test_protocol import batches, network, report_of, states_and_gradients

from fa_audit import diagnose
from fa_audit.audit.audit_file import read_audit
from fa_audit.core.errors import AuditError
from fa_audit.experiments.paths import tidy_file
from fa_audit.results.figures import audit_overview, verdict_matrix
from fa_audit.results.over_seeds import verdict_over_seeds
from fa_audit.results.tables.audits import main_audit
from fa_audit.results.tidy import write_tables
from fa_audit.results.verdict_summary import verdict_lines

ENDS = (2.5, 97.5)


def norms_of(states):
    return np.stack([h.detach().double().norm(dim=1).numpy() for h in states])


def test_the_intervals_of_a_report_are_those_of_brute_force():
    model, data = network(), batches(9, size=128)
    report = diagnose(model, data, 0.61, 0.59, test_samples=400)
    states, gradients = states_and_gradients(model, *data[0])
    draws = np.random.default_rng(5).integers(128, size=(5000, 128))
    hidden, slopes = norms_of(states), norms_of(gradients)[-1]
    medians = np.array([np.median(hidden[:, draw], axis=1) for draw in draws])
    growth = (medians[:, 1:] / medians[:, :-1]).max(axis=1)
    assert report.checks.scale.interval == pytest.approx(np.percentile(growth, ENDS), rel=0.01)
    slope = np.percentile([np.median(slopes[draw]) for draw in draws], ENDS)
    assert report.checks.reference.interval == pytest.approx(slope, rel=0.05)

    means = [states_and_gradients(model, *batch)[1][report.stability_layer].double().mean(dim=0) for batch in data]
    cosines = np.array([[torch.cosine_similarity(a, b, dim=0) for a in means] for b in means])
    without = [np.mean([cosines[p] for p in itertools.combinations(set(range(9)) - {k}, 2)]) for k in range(9)]
    half = stats.t.ppf(0.975, 8) * math.sqrt(8 / 9 * np.sum((without - np.mean(without)) ** 2))
    ends = report.cross_batch_stability - half, report.cross_batch_stability + half
    assert report.checks.stability.interval == pytest.approx(np.clip(ends, -1, 1), abs=1e-5)

    error = math.sqrt((0.61 * 0.39 + 0.59 * 0.41) / 400)
    assert report.checks.depth.interval == pytest.approx((0.02 - 1.96 * error, 0.02 + 1.96 * error), abs=2e-3)
    assert report.borderline == ["D3"] and report.checks.depth.distance == 0


def with_interval(report, **intervals):
    """The report with other intervals of the named evidence."""
    return replace(report, evidence=replace(report.evidence, **intervals))


def test_a_borderline_verdict_stays_and_is_called_so_in_texts_and_in_json(tmp_path):
    report = with_interval(report_of(stability=0.4), stability_interval=(0.25, 0.55))
    assert report.verdict == "needs walk-back (c)" and report.borderline == ["c"]
    for text in (str(report), report.to_markdown()):
        assert "needs walk-back (c) (borderline)" in text and "0.4 (0.25 to 0.55), 0.1 above" in text
    entry = report.to_dict()
    assert entry["borderline"] == {"checks": ["c"], "three_check": False, "four_check": True}
    (tmp_path / "audit.json").write_text(json.dumps(entry))
    found = read_audit(tmp_path / "audit.json")["checks"]["stability"]
    assert (found["interval"], found["borderline"]) == ([0.25, 0.55], True)
    assert found["distance"] == pytest.approx(-0.1)
    clear = with_interval(report_of(growth=500.0, stability=0.4), stability_interval=(0.25, 0.55))
    assert clear.checks.scale.distance == pytest.approx(-1)  # ten times the limit: this walk-back stands
    assert clear.borderline == ["c"] and "(a, c)\n" in str(clear) and not clear.to_dict()["borderline"]["four_check"]


def test_the_floor_is_that_of_the_batch_size():
    model = network()
    with torch.no_grad():
        model.head.linear.weight.mul_(1e-5)
    entries = {size: diagnose(model, batches(2, size=size), None).checks.reference for size in (32, 128)}
    assert (entries[32].threshold, entries[128].threshold) == (4e-7, 1e-7)
    assert entries[32].threshold_note == "1e-07 for batches of 128 samples, scaled to 32"


def test_pairs_narrow_the_margin_and_must_be_those_of_the_accuracies():
    own, frozen = np.arange(400) < 240, np.arange(400) < 220
    unpaired = diagnose(network(), batches(), 0.60, 0.55, test_samples=400).checks.depth
    paired = diagnose(network(), batches(), 0.60, 0.55, paired_hits=(own, frozen)).checks.depth
    assert np.ptp(paired.interval) < 0.5 * np.ptp(unpaired.interval) and unpaired.borderline and not paired.borderline
    assert "test_samples" in diagnose(network(), batches(), 0.6, 0.55).checks.depth.interval_note
    for wrong in ({"paired_hits": (own, own)}, {"paired_hits": 3}, {"test_samples": 0.5}):
        with pytest.raises(AuditError, match=f"{next(iter(wrong))}: found|{next(iter(wrong))}: .*; expected two"):
            diagnose(network(), batches(), 0.60, 0.55, **wrong)


def seeds_of_bp(*distances):
    """Networks of one run, healthy but for the distance of their stability from its limit."""
    return [
        network_row("bp", seed=seed, fires="c" if far < 0 else "", stability=0.3 - far, stability_distance=far,
                    grad_norm_last=1e-3 + seed, max_growth=2.0 + seed, stability_interval_low=0.2 - far,
                    stability_interval_high=0.4 - far, stability_borderline=abs(far) < 0.1,
                    four_check_borderline=abs(far) < 0.1)
        for seed, far in enumerate(distances)
    ]  # fmt: skip


def test_one_verdict_stands_for_all_seeds_and_says_how_many_would_settle_it(tmp_path, monkeypatch):
    tidy = tidy_of(seeds_of_bp(0.05, -0.03, 0.06))
    (row,) = cells(main_audit(tidy, title="t", labels={}))
    said = "trustworthy 2/3; borderline: c (-0.096 to +0.15 from its limit); 16 seeds would settle it"
    assert row["four-check"] == said
    values = main_audit(tidy, title="t", labels={}).values.set_index(["quantity", "statistic"])
    assert values.loc[("stability_distance", "seeds_to_settle"), "value"] == 16
    assert values.loc[("stability_distance", "interval_low"), "value"] == pytest.approx(-0.0959, abs=1e-4)
    monkeypatch.chdir(tmp_path)
    write_tables({tidy_file("runs", "main"): tidy.runs.assign(baseline="bp+frozen")})
    lines = "\n".join(verdict_lines(["main"]))
    assert said in lines and "trustworthy (borderline)" in lines
    assert drawn(verdict_matrix, tidy).axes[0].texts[0].get_text() == "(c)\npass 3/3\nborderline c"
    stability = drawn(audit_overview, tidy).axes[2]
    assert (
        len(np.concatenate(lines_of(stability, "borderline"))) == 3 and len(stability.collections[0].get_paths()) == 3
    )
    clear = verdict_over_seeds(tidy_of(seeds_of_bp(-0.05, -0.06, -0.04)).runs.to_dict("records"))
    assert str(clear) == "needs walk-back (c) 3/3" and clear.checks["c"].interval[1] < 0
