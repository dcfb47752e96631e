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
from fa_audit.protocol.evidence import Baselines, Evidence, Stability, State

# The numbers of an evidence that decide the four checks, where these fire and where they pass.
FIRING = {"growth": 1e3, "gradient": 1e-9, "stability": 0.9, "own": 0.5}
HEALTHY = {"growth": 2.0, "gradient": 1e-3, "stability": 0.1, "own": 0.1}
FOUR = ("scale", "reference", "stability", "depth")


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
@pytest.mark.parametrize("fires", list(itertools.product((True, False, None), repeat=4)))
def test_verdicts_over_all_outcomes(fires, finite):
    measured = {}
    for name, outcome in zip(HEALTHY, fires, strict=True):
        measured[name] = {True: FIRING, False: HEALTHY}.get(outcome, {}).get(name)
    report = report_of(**measured, finite=finite)
    assert [report.checks[name].fires for name in FOUR] == list(fires)
    assert (report.three_check_verdict, report.verdict) == verdicts(*fires, finite)
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("name", "limit", "check", "fires_above"),
    [("growth", 50.0, "scale", True), ("gradient", 1e-7, "reference", False),
     ("stability", 0.30, "stability", True)],
)  # fmt: skip
def test_the_paper_s_limits_are_strict(name, limit, check, fires_above):
    values = [math.nextafter(limit, -math.inf), limit, math.nextafter(limit, math.inf)]
    outcomes = [report_of(**{name: value}).checks[check].fires for value in values]
    assert outcomes == [not fires_above, False, fires_above]


@pytest.mark.parametrize(("images", "fires"), [(200, False), (199, True)])
def test_a_margin_of_exactly_two_points_does_not_fire(images, fires):
    """Accuracies are whole numbers of images: 200 of 10,000 above the baseline are two points,
    however they round.
    """
    for frozen in range(0, 9801, 7):
        report = report_of((frozen + images) / 10_000, frozen / 10_000)
        assert report.checks["depth"].fires == fires


def test_saturated_and_collapsed_references_are_told_apart():
    limit = DiagnosticThresholds().loss_saturation
    causes = []
    for scale_free in (1e-4, math.nextafter(limit, 0), limit, 10.0):
        causes.append(report_of(gradient=1e-9, scale_free=scale_free).checks["reference"].cause)
    assert causes == ["saturated loss"] * 2 + ["collapsed reference"] * 2
    assert report_of(gradient=1e-3, scale_free=1e-4).checks["reference"].note == ""


@pytest.mark.parametrize(
    ("factor", "cause"), [(0.0, "collapsed reference"), (1e3, "saturated loss")]
)
def test_a_gradient_that_the_head_takes_away_is_not_a_saturated_loss(factor, cause):
    model = network()
    [(images, _)] = batches(1, size=16)
    labels = model(images).argmax(dim=-1)
    with torch.no_grad():
        model.head.linear.weight.mul_(factor)
        model.head.linear.bias.mul_(factor)
    report = diagnose(model, [(images, labels)], 0.5)
    derived = DiagnosticReport.from_dict(report.to_dict()).checks
    assert {report.checks["reference"].cause, derived["reference"].cause} == {cause}


def test_growth_that_is_infinite_fires_and_growth_that_is_undefined_is_not_evaluated():
    assert report_of(growth=math.inf).checks["scale"].fires
    assert report_of(growth=math.nan).checks["scale"].fires is None
    without_blocks = report_of().replace(layers=(evidence().layers[-1].replace(layer=0),))
    assert without_blocks.checks["scale"].fires is None


def network(depth=3):
    options = {"width": 6, "depth": depth, "terminal_norm": True, "residual": True}
    with torch.random.fork_rng():
        torch.manual_seed(41)
        return ResMLP(image_shape=(1, 2, 3), classes=4, **options)


def batches(count=4, size=9):
    randomness = torch.Generator().manual_seed(42)
    found = []
    for _ in range(count):
        x = torch.randn(size, 1, 2, 3, generator=randomness)
        found.append((x, torch.randint(4, (size,), generator=randomness)))
    return found


def test_layers_equal_a_direct_computation():
    model, data = network(), batches()
    states, gradients = states_and_gradients(model, *data[0])
    norms = [h.double().norm(dim=1).median().item() for h in states]
    slopes = [g.double().norm(dim=1).median().item() for g in gradients]
    growths = [after / before for before, after in itertools.pairwise(norms)]
    found = measure(model, data[0], data)
    assert (found.samples, found.batches, found.finite) == (9, 4, True)
    assert [entry.layer for entry in found.layers] == [0, 1, 2, 3]
    assert [entry.growth for entry in found.layers[:-1]] == pytest.approx(growths, rel=1e-6)
    assert found.layers[-1].growth is None
    for entry, norm, slope in zip(found.layers, norms, slopes, strict=True):
        measured = (entry.hidden_norm, entry.grad_norm, entry.scale_free)
        assert measured == pytest.approx((norm, slope, 9 * slope * norm), rel=1e-6)
        assert entry.grad_norm_per_sample == pytest.approx(9 * slope, rel=1e-6)


def test_the_largest_growth_of_any_block_decides():
    model = network()
    with torch.no_grad():
        model.blocks[1].outer.weight.mul_(1e4)
    report = diagnose(model, batches(), None)
    growths = [entry.growth for entry in report.layers[:-1]]
    scale = report.checks["scale"]
    assert scale.fires and max(growths) == growths[1] == scale.value > 50


def test_float32_agreement_of_a_healthy_network_is_tiny_and_computed_as_documented():
    model, data = network(), batches(size=32)
    x, labels = data[0]
    _, single = states_and_gradients(model, x, labels)
    _, double = states_and_gradients(network().double(), x.double(), labels)
    for entry, g, exact in zip(measure(model, data[0], data).layers, single, double, strict=True):
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
    means = []
    for batch in data:
        means.append(states_and_gradients(model, *batch)[1][taken].double().mean(dim=0))
    pairs = [F.cosine_similarity(*pair, dim=0) for pair in itertools.combinations(means, 2)]
    report = diagnose(model, data, None, layer_for_stability=layer)
    assert report.stability.layer == taken
    assert report.cross_batch_stability == pytest.approx(np.mean(pairs), abs=1e-5)


def test_stability_needs_eight_batches_and_the_first_ten_are_used():
    single, seven = (diagnose(network(), batches(count), 0.3, 0.1) for count in (1, 7))
    assert single.cross_batch_stability is None and seven.cross_batch_stability is not None
    assert single.verdict == seven.verdict == "incomplete (C not evaluated)"
    data = batches(12)
    assert diagnose(network(), data[:8], None).checks["stability"].fires is not None
    report = diagnose(network(), iter(data), None)
    ten = diagnose(network(), data[:10], None)
    # A report has its date.
    assert (report.layers, report.stability) == (ten.layers, ten.stability)
    assert report.batches == 10


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_reports_are_strict_json_and_readable_whatever_they_hold(value):
    report = report_of(growth=value, gradient=value, scale_free=value, finite=False)
    again = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert again["layers"][1]["grad_norm"] == str(value) and again["finite"] is False
    assert "non-finite" in again["flags"]
    for text in (str(report), report.to_markdown(), report.details()):
        assert "non-finite" in text
