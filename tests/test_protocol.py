"""Verdict rules over all combinations, thresholds at their boundaries, reports, and what is
measured behind them.
"""

import itertools
import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from networks import states_and_gradients

from fa_audit import DiagnosticReport, DiagnosticThresholds, diagnose
from fa_audit.audit.diagnostics import measure
from fa_audit.networks.resmlp import ResMLP
from fa_audit.protocol.checks import evaluate
from fa_audit.protocol.evidence import Baselines, Evidence, Stability, State

VALUES = (True, False, None)
FIRING = {"growth": 1e3, "gradient": 1e-9, "stability": 0.9, "own": 0.5}
HEALTHY = {"growth": 2.0, "gradient": 1e-3, "stability": 0.1, "own": 0.1}


def evidence(growth=2.0, gradient=1e-3, stability=0.1, scale_free=1.0, finite=True):
    """Evidence of a network with one block; None stands for what cannot be measured."""
    gradient = math.nan if gradient is None else gradient
    first = {"layer": 0, "hidden_norm": 1.0, "grad_norm": 1.0, "growth": growth, "scale_free": 1.0}
    last = {"layer": 1, "hidden_norm": growth or 1.0, "grad_norm": gradient, "growth": None}
    states = [
        State(**first, grad_norm_per_sample=8.0),
        State(**last, grad_norm_per_sample=8 * gradient, scale_free=scale_free),
    ]
    reason = "absent" if stability is None else ""
    mean = Stability(value=stability, n=10, n_valid=10, reason=reason, layer=1)
    return Evidence(layers=tuple(states), stability=mean, samples=128, batches=10, finite=finite)


def report_of(accuracy=0.5, own=0.1, thresholds=None, bp=None, **measured):
    facts = {"method": "dfa", "headline_acc": accuracy, "baselines": Baselines(own=own, bp=bp)}
    facts["thresholds"] = thresholds or DiagnosticThresholds()
    return DiagnosticReport(**(dict(evidence(**measured)) | facts))


def fired(report):
    checks = report.checks
    return [
        checks["scale"].fires,
        checks["reference"].fires,
        checks["stability"].fires,
        checks["depth"].fires,
    ]


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
    fired, unknown = named(D1=a, D2=b, C=c, D3=d)
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
            report_of(accuracy=own, own=frozen).checks["depth"].fires for own, frozen in pairs
        } == {expected}


def test_saturated_and_collapsed_references_are_told_apart():
    limit = DiagnosticThresholds().loss_saturation
    causes = {
        scale_free: report_of(gradient=1e-9, scale_free=scale_free).checks["reference"].note
        for scale_free in (1e-4, math.nextafter(limit, 0), limit, 10.0)
    }
    assert list(causes.values()) == ["saturated loss"] * 2 + ["collapsed reference"] * 2
    assert report_of(gradient=1e-3, scale_free=1e-4).checks["reference"].note == ""


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
    derived = DiagnosticReport.from_dict(report.to_dict()).checks
    assert {report.checks["reference"].cause, derived["reference"].cause} == {cause}


def test_growth_that_is_infinite_fires_and_growth_that_is_undefined_is_not_evaluated():
    assert [fired(report_of(growth=growth))[0] for growth in (math.inf, math.nan)] == [True, None]
    without_blocks = evidence().replace(layers=evidence().layers[1:])
    assert evaluate(without_blocks)["scale"].fires is None


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
    growths = [entry.growth for entry in report.layers[:-1]]
    assert (
        max(growths) == growths[1] == report.checks["scale"].value > 50
        and report.checks["scale"].fires
    )


def test_float32_agreement_of_a_healthy_network_is_tiny_and_computed_as_documented():
    model, data = network(), batches(size=32)
    x, labels = data[0]
    _, single = states_and_gradients(model, x, labels)
    _, double = states_and_gradients(network().double(), x.double(), labels)
    for entry, g, exact in zip(measure(model, data).layers, single, double, strict=True):
        error = ((g.double() - exact).norm(dim=1) / exact.norm(dim=1)).median().item()
        cosines = F.cosine_similarity(g.double(), exact, dim=1).numpy()
        assert entry.float32_error.value == pytest.approx(error, rel=1e-6)
        assert entry.float32_cosine.value == pytest.approx(np.percentile(cosines, 1), abs=1e-14)
        assert (entry.float32_error.n_valid, entry.float32_cosine.n) == (32, 32)
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
    assert report.stability.layer == taken
    assert report.cross_batch_stability == pytest.approx(np.mean(pairs), abs=1e-5)


def test_stability_needs_eight_batches_and_the_first_ten_are_used():
    single, seven = (diagnose(network(), batches(count), 0.3, 0.1) for count in (1, 7))
    assert single.cross_batch_stability is None and single.verdict == "incomplete (C not evaluated)"
    assert seven.cross_batch_stability is not None and seven.verdict == single.verdict
    data = batches(12)
    assert diagnose(network(), data[:8], None).checks["stability"].fires is not None
    report = diagnose(network(), iter(data), None)
    assert report == diagnose(network(), data[:10], None) and report.batches == 10


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_reports_are_strict_json_and_readable_whatever_they_hold(value):
    report = report_of(growth=value, gradient=value, scale_free=value, finite=False)
    again = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert again["layers"][1]["grad_norm"] == str(value) and again["finite"] is False
    assert "non-finite" in again["flags"]
    for text in (str(report), report.to_markdown(), report.details()):
        assert "non-finite" in text


def test_the_dictionary_holds_verdicts_and_numbers():
    report = report_of(growth=1234.0, gradient=5.67e-8, accuracy=0.5, own=0.495, bp=0.1)
    entry = report.replace(notes="a remark", method="mine").to_dict()
    assert (entry["method"], entry["notes"], entry["headline_acc"]) == ("mine", "a remark", 0.5)
    verdicts = {"three_check": "FAIL(D1+D2+D3)", "four_check": "needs walk-back (D1, D2, D3)"}
    assert verdicts | {"baseline": "own frozen baseline"} == entry["verdict"]
    scale = {"label": "D1", "value": 1234.0, "threshold": 50.0, "fires": True, "note": ""}
    assert scale.items() <= entry["checks"]["scale"].items() and entry["flags"] == report.flags
