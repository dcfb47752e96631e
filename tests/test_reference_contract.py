"""Whoever used one of the paper's two packages changes the import and nothing else."""

import json
import math

import pytest
import torch.nn.functional as F
from networks import batch_of, rough_learner, states_and_gradients

import fa_audit
from fa_audit import DiagnosticThresholds, FAProtocol, diagnose
from fa_audit.core.errors import AuditError


@pytest.fixture
def case():
    """A network and 300 samples, more than one batch of 128."""
    x, labels = batch_of((1, 4, 4), 300)
    return rough_learner("resmlp", shape=(1, 4, 4)).network.float(), x.float(), labels


def accuracy(model, x, y):
    """The share of right outputs, which an audit of these samples believes."""
    return (model(x).argmax(dim=1) == y).double().mean().item()


def norms(model, x, y, loss_fn=F.cross_entropy):
    """Median norms of states and of gradients, by autograd."""
    both = states_and_gradients(model, x, y, loss_fn)
    return [pytest.approx([r.norm(dim=1).median().item() for r in rows]) for rows in both]


def test_the_three_check_package_s_quick_start(case):
    protocol = FAProtocol(*case)
    report = protocol.run(0.349)
    scale, reference, depth = report["diagnostics"].values()
    assert [scale["hidden_norms"], reference["bp_grad_norms"]] == norms(*case)
    assert report["test_acc"] == pytest.approx(accuracy(*case))
    assert depth["margin"] == pytest.approx(accuracy(*case) - 0.349)
    lines = protocol.summary(json.loads(json.dumps(report))).splitlines()
    assert lines[0] == f"Verdict: {report['verdict']}"
    assert [line.partition(" ")[0] for line in lines[2:5]] == ["D1", "D2", "D3"]


def undated(found):
    """The report of a run, without the second in which it was made."""
    return found.report.model_copy(update={"about": found.report.about | {"date": ""}})


@pytest.mark.parametrize(
    ("limits", "options", "fires"),
    [((1e-3, 1.0, 1e9), {}, [True, True, False]), ((), {"d2_eps": 1.0, "d2_factor": 1e9}, [False, True, False]),
     ((50.0, 1e-8, 10.0, 99.0), {}, [False, False, True])],
)  # fmt: skip
def test_the_limits_of_the_three_checks_decide(case, limits, options, fires):
    protocol = FAProtocol(*case, *limits, **options)
    report = protocol.run(0.1, accuracy(*case))
    assert [check["fires"] for check in report["diagnostics"].values()] == fires
    with pytest.raises(AuditError, match="give one of the two"):
        FAProtocol(*case, *limits, **options, thresholds=DiagnosticThresholds())
    unset = FAProtocol(*case, *limits, **options, thresholds=None, sample=None)
    assert unset.run(0.1, accuracy(*case)) == report
    # The size of the test set may be given at once, or with its accuracy.
    at_once = FAProtocol(*case, *limits, **options, test_samples=10_000).run(0.1, 0.3)
    later, untold = protocol.run(0.1, 0.3, test_samples=10_000), protocol.run(0.1, 0.3)
    assert undated(at_once) == undated(later) != undated(untold)


def test_the_four_check_package_s_functions(case):
    model, x, y = case
    batches, one_hot = list(zip(x.split(100), y.split(100))), F.one_hot(y, 3).float()
    assert [fa_audit.residual_norms(model, x), fa_audit.bp_grad_norms(*case)] == norms(*case)
    report = diagnose(model, [(x, one_hot)], 0.5, loss_fn=F.mse_loss)
    squared = norms(model, x, one_hot, F.mse_loss)[1]
    assert fa_audit.bp_grad_norms(model, x, one_hot, F.mse_loss) == squared == report.bp_grad_norms
    assert "mse_loss" in report.notes
    stability = diagnose(model, batches, 0.5, layer_for_stability=1).cross_batch_stability
    assert fa_audit.cross_batch_direction_stability(model, batches, 1) == stability
    with pytest.raises(AuditError, match="needs two batches"):
        fa_audit.cross_batch_direction_stability(model, batches[:1], 1)


@pytest.mark.parametrize("name", DiagnosticThresholds.__dataclass_fields__)
def test_limits_that_make_no_sense_are_refused(name):
    for value in (math.nan, math.inf, -200.0, "1", None, True):
        with pytest.raises(AuditError, match=f"thresholds: {name}: found"):
            DiagnosticThresholds(**{name: value})


def test_limits_have_the_names_of_both_worlds():
    limits = DiagnosticThresholds(60, 1e-6, frozen_acc_margin_pp=0.7).limits
    assert limits == {
        "growth": 60,
        "reference": 1e-6,
        "stability": 0.3,
        "depth_margin": 0.007,
        "saturation": 0.01,
    }
    assert (
        DiagnosticThresholds.of(limits).limits == limits
        and DiagnosticThresholds.of({}) == DiagnosticThresholds()
    )


def test_one_package_has_attributes_and_the_other_a_dictionary_of_the_same_audit(case):
    batches = list(zip(case[1].split(100), case[2].split(100)))
    trained = accuracy(*case)
    attributes = diagnose(case[0], batches, trained, trained + 0.1, "fa", "n", 1)
    protocol = FAProtocol(*case, method_name="fa", notes="n", layer_for_stability=1, batch_size=100)
    report = protocol.run(trained + 0.1, trained)
    assert report.report.replace(about={}) == attributes.replace(about={})
    assert list(report) == ["verdict", "test_acc", "diagnostics"] and report["test_acc"] == trained
    assert report["verdict"] == attributes.three_check_verdict == "FAIL(D3)"
    assert list(report["diagnostics"]) == ["D1_scale_growth", "D2_ref_validity", "D3_depth_utility"]
    scale, reference, depth = report["diagnostics"].values()
    assert scale["max_growth"] == max(scale["per_block_growth"]) and scale["threshold"] == 50.0
    assert reference["g_L"] == reference["bp_grad_norms"][-1]
    assert reference["floor"] == pytest.approx(1.28e-7)
    assert depth == {
        "test_acc": trained,
        "frozen_baseline_acc": trained + 0.1,
        "margin": pytest.approx(-0.1),
        "margin_threshold": 0.02,
        "fires": True,
    }


def test_a_feature_map_s_gradient_is_given_by_sum_and_by_mean():
    network = rough_learner("small_resnet", shape=(1, 4, 4)).network.eval()
    batch = batch_of((1, 4, 4))
    _, gradients = states_and_gradients(network, *batch)
    for entry, g in zip(diagnose(network, [batch], None).layers, gradients):
        by_mean = g.mean(dim=(2, 3)).norm(dim=1).median().item()
        found = (entry.grad_norm_position_mean, entry.grad_norm)
        assert found == pytest.approx((by_mean, 16 * by_mean))
