"""Verdict rules over all combinations, thresholds at their boundaries, reports, and what is
measured behind them.
"""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from networks import states_and_gradients

from fa_audit import DiagnosticReport, DiagnosticThresholds, diagnose
from fa_audit.audit.diagnostics import Diagnostics, Layer, measure
from fa_audit.audit.record import outcomes_of
from fa_audit.core.vectors import Measured
from fa_audit.networks.resmlp import ResMLP
from fa_audit.protocol.verdicts import Baselines, Given, check

ABSENT = Measured(None, 8, 0, "absent")
VALUES = (True, False, None)
FIRING = {"growth": 1e3, "gradient": 1e-9, "stability": 0.9, "own": 0.5}
HEALTHY = {"growth": 2.0, "gradient": 1e-3, "stability": 0.1, "own": 0.1}


def evidence(growth=2.0, gradient=1e-3, stability=0.1, scale_free=1.0, finite=True):
    """Diagnostics of a network with one block; None stands for what cannot be measured."""
    gradient = math.nan if gradient is None else gradient
    layers = (
        Layer(0, 1.0, 1.0, 8.0, growth, 1.0, ABSENT, ABSENT),
        Layer(1, growth or 1.0, gradient, 8 * gradient, None, scale_free, ABSENT, ABSENT),
    )
    return Diagnostics(
        layers, ABSENT if stability is None else Measured(stability, 10, 10), 1, 128, 10, finite
    )


def report_of(accuracy=0.5, own=0.1, thresholds=None, bp=None, **measured):
    baselines = Baselines(own, bp=bp)
    return DiagnosticReport(
        "dfa", evidence(**measured), accuracy, baselines, thresholds or DiagnosticThresholds()
    )


def fired(report):
    checks = report.checks
    return [checks.scale.fires, checks.reference.fires, checks.stability.fires, checks.depth.fires]


def wanted(fires):
    """Evidence for a wanted outcome of the four checks."""
    return {
        name: FIRING[name] if outcome else HEALTHY[name] if outcome is False else None
        for name, outcome in zip(HEALTHY, fires, strict=True)
    }


def verdicts(a, b, c, d, finite):
    """Both verdicts, from their rules: what fired is named, and nothing unevaluated passes."""

    def named(**outcomes):
        fired = [name for name, fires in outcomes.items() if fires] + ["non-finite"] * (not finite)
        return fired, [name for name, fires in outcomes.items() if fires is None]

    fired, unknown = named(D1=a, D2=b, D3=d)
    three = f"INCOMPLETE({'+'.join(unknown)} not evaluated)" if unknown else "PASS"
    if (a and b) or d or not finite:
        three = f"FAIL({'+'.join(fired)})"
    fired, unknown = named(a=a, b=b, c=c, d=d)
    four = f"incomplete ({', '.join(unknown)} not evaluated)" if unknown else "trustworthy"
    return three, f"needs walk-back ({', '.join(fired)})" if fired else four


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("fires", list(itertools.product(VALUES, repeat=4)))
def test_verdicts_over_all_outcomes(fires, finite):
    report = report_of(**wanted(fires), finite=finite)
    assert fired(report) == list(fires)
    assert (report.three_check_verdict, report.verdict) == verdicts(*fires, finite)
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("name", "limit", "index", "fires_above"), [("growth", 50.0, 0, True), ("gradient", 1e-7, 1, False),
                                                ("stability", 0.30, 2, True)],
)  # fmt: skip
def test_the_paper_s_limits_are_strict(name, limit, index, fires_above):
    below, above = (math.nextafter(limit, end) for end in (-math.inf, math.inf))
    outcomes = [fired(report_of(**{name: value}))[index] for value in (below, limit, above)]
    assert outcomes == [not fires_above, False, fires_above]


def test_a_margin_of_exactly_two_points_does_not_fire():
    """Accuracies are whole numbers of images: 200 of 10,000 above the baseline are two points,
    however they round.
    """
    for images, expected in ((200, False), (199, True)):
        pairs = [((n + images) / 10_000, n / 10_000) for n in range(0, 9801, 7)]
        assert {
            report_of(accuracy=own, own=frozen).checks.depth.fires for own, frozen in pairs
        } == {expected}


def test_saturated_and_collapsed_references_are_told_apart():
    limit = DiagnosticThresholds().loss_saturation
    causes = {
        scale_free: report_of(gradient=1e-9, scale_free=scale_free).checks.reference.note
        for scale_free in (1e-4, math.nextafter(limit, 0), limit, 10.0)
    }
    assert list(causes.values()) == ["saturated loss"] * 2 + ["collapsed reference"] * 2
    assert report_of(gradient=1e-3, scale_free=1e-4).checks.reference.note == ""


@pytest.mark.parametrize(
    ("factor", "cause"), [(0.0, "collapsed reference"), (1e3, "saturated loss")]
)
def test_a_gradient_that_the_head_takes_away_is_not_a_saturated_loss(factor, cause):
    torch.manual_seed(0)
    model = ResMLP(image_shape=(1, 2, 3), classes=4, width=6, depth=2)
    images = torch.rand(16, 1, 2, 3)
    labels = model(images).argmax(dim=-1)
    with torch.no_grad():
        model.head.linear.weight.mul_(factor)
        model.head.linear.bias.mul_(factor)
    report = diagnose(model, [(images, labels)], 0.5)
    derived = outcomes_of(report.to_dict())["checks"]
    assert {report.checks.reference.note, derived["reference"]["note"]} == {cause}


def test_growth_that_is_infinite_fires_and_growth_that_is_undefined_is_not_evaluated():
    assert [fired(report_of(growth=growth))[0] for growth in (math.inf, math.nan)] == [True, None]
    without_blocks = replace(evidence(), layers=evidence().layers[1:])
    assert (
        check(Given(without_blocks, 0.5, Baselines(0.1), DiagnosticThresholds())).scale.fires
        is None
    )


def network(depth=3):
    with torch.random.fork_rng():
        torch.manual_seed(41)
        return ResMLP(
            image_shape=(1, 2, 3),
            classes=4,
            width=6,
            depth=depth,
            terminal_norm=True,
            residual=True,
        )


def batches(count=4, size=9):
    randomness = torch.Generator().manual_seed(42)
    return [
        (
            torch.randn(size, 1, 2, 3, generator=randomness),
            torch.randint(4, (size,), generator=randomness),
        )
        for _ in range(count)
    ]


def test_layers_equal_a_direct_computation():
    model, data = network(), batches()
    states, gradients = states_and_gradients(model, *data[0])
    norms = [h.double().norm(dim=1).median().item() for h in states]
    slopes = [g.double().norm(dim=1).median().item() for g in gradients]
    found = measure(model, data)
    assert (found.samples, found.batches, found.finite) == (9, 4, True)
    for layer, (entry, norm, slope) in enumerate(zip(found.layers, norms, slopes, strict=True)):
        measured = (
            entry.hidden_norm,
            entry.grad_norm,
            entry.grad_norm_per_sample,
            entry.scale_free,
        )
        assert measured == pytest.approx((norm, slope, 9 * slope, 9 * slope * norm), rel=1e-6)
        assert entry.layer == layer
        assert entry.growth == (
            None if layer == 3 else pytest.approx(norms[layer + 1] / norm, rel=1e-6)
        )


def test_the_largest_growth_of_any_block_decides():
    model = network()
    with torch.no_grad():
        model.blocks[1].outer.weight.mul_(1e4)
    report = diagnose(model, batches(), None)
    growths = [entry.growth for entry in report.evidence.layers[:-1]]
    assert (
        max(growths) == growths[1] == report.checks.scale.value > 50 and report.checks.scale.fires
    )


def test_float32_agreement_of_a_healthy_network_is_tiny_and_computed_as_documented():
    model, data = network(), batches(size=32)
    x, labels = data[0]
    _, single = states_and_gradients(model, x, labels)
    _, double = states_and_gradients(network().double(), x.double(), labels)
    for entry, g, exact in zip(measure(model, data).layers, single, double, strict=True):
        error = ((g.double() - exact).norm(dim=1) / exact.norm(dim=1)).median().item()
        cosines = F.cosine_similarity(g.double(), exact, dim=1).numpy()
        assert entry.float32_error == Measured(pytest.approx(error, rel=1e-6), 32, 32)
        assert entry.float32_cosine == Measured(
            pytest.approx(np.percentile(cosines, 1), abs=1e-14), 32, 32
        )
        assert 0 < entry.float32_error.value < 1e-5 and entry.float32_cosine.value > 1 - 1e-9


@pytest.mark.parametrize(
    ("depth", "layer", "taken"), [(3, None, 2), (4, None, 2), (1, None, 1), (3, 0, 0), (3, 3, 3)]
)
def test_stability_equals_a_direct_computation(depth, layer, taken):
    model, data = network(depth), batches(5)
    means = torch.stack(
        [states_and_gradients(model, *batch)[1][taken].double().mean(dim=0) for batch in data]
    ).numpy()
    pairs = [
        np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
        for a, b in itertools.combinations(means, 2)
    ]
    report = diagnose(model, data, None, layer_for_stability=layer)
    assert report.stability_layer == taken
    assert report.cross_batch_stability == pytest.approx(np.mean(pairs), abs=1e-5)


def test_stability_needs_eight_batches_and_the_first_ten_are_used():
    single, seven = (diagnose(network(), batches(count), 0.3, 0.1) for count in (1, 7))
    assert single.cross_batch_stability is None and single.verdict == "incomplete (c not evaluated)"
    assert seven.cross_batch_stability is not None and seven.verdict == single.verdict
    data = batches(12)
    assert diagnose(network(), data[:8], None).checks.stability.fires is not None
    report = diagnose(network(), iter(data), None)
    assert report == diagnose(network(), data[:10], None) and report.evidence.batches == 10


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_reports_are_strict_json_and_readable_whatever_they_hold(value):
    report = report_of(growth=value, gradient=value, scale_free=value, finite=False)
    again = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert again["layers"][1]["grad_norm"] == str(value) and again["finite"] is False
    assert (
        "non-finite" in again["flags"]
        and "non-finite" in str(report)
        and "non-finite" in report.to_markdown()
    )


def test_texts_and_the_dictionary_hold_verdicts_and_numbers():
    report = report_of(growth=1234.0, gradient=5.67e-8, accuracy=0.5, own=0.495, bp=0.1)
    report = replace(report, notes="a remark", method_name="mine")
    entry = report.to_dict()
    assert list(entry["verdict"].values()) == [
        report.three_check_verdict,
        report.verdict,
        "own frozen baseline",
    ]
    scale = {
        "name": "scale stability",
        "value": 1234.0,
        "threshold": 50.0,
        "fires": True,
        "note": "",
    }
    assert scale.items() <= entry["checks"]["scale"].items()
    assert entry["headline_acc"] == 0.5 and entry["flags"] == report.flags
    for text in (str(report), report.to_markdown()):
        for part in (
            "mine", "FAIL(D1+D2+D3)", "needs walk-back (a, b, d)", "1.23e+03", "5.67e-08", "0.5 points",
            "own frozen baseline", "collapsed reference", "FIRES", "a remark", "< 2 points", "> 50", "< 1e-07",
        ):  # fmt: skip
            assert part in text, part
    lines = [line for line in report.to_markdown().splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in lines} == {7}
