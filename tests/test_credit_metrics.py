"""Credit metrics against closed forms: true gradients, transposed heads, chance, hand-scaled
weights.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from networks import batch_of, rough_learner, snapshot
from test_metrics import counted
from torch import nn

from fa_audit.audit.credit_metrics import (
    DEEP,
    CreditReport,
    deep_mean,
    loss_changes,
    nudging,
    over_draws,
    perturbation_correlation,
    unit_directions,
)
from fa_audit.audit.run_credits import bridge_residuals, drift, feature_drift, measure_credits
from fa_audit.core.measured import Measured
from fa_audit.core.randomness import generator
from fa_audit.methods import METHODS
from fa_audit.networks.trace import reference, trace
from fa_audit.training.learner import build, learn
from fa_audit.training.loop import block_credits

SHAPE, CLASSES, BATCH, WIDTH = (1, 4, 4), 3, 24, 8
SIDED = {"cosine", "clamped_cosine", "rho", "rho_bp", "rho_random", "nudging", "fresh_b_cosine"}
PER_BLOCK = SIDED | {f"{name}_at_input" for name in SIDED | {"rho_float32", "rho_bp_float32"}}
PER_BLOCK |= {"bridge_residual", "feature_drift", "credit_norm", "residual_ratio"}


@pytest.fixture
def batch():
    return batch_of(SHAPE, BATCH)


@pytest.fixture
def vectors():
    """Random credits ``(B, d)``, directions ``(M, B, d)`` and the loss changes that are linear in
    them.
    """
    credit = drawn(BATCH, WIDTH, seed=2)
    directions = unit_directions(2, 0, credit)
    return credit, directions, 1e-3 * (directions * credit).sum(dim=-1)


def drawn(*shape, seed=3):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rough(method, **options):
    return rough_learner("resmlp", method, SHAPE, **{"depth": 3} | options)


def test_rho_is_numpys_correlation_of_the_pooled_pairs(vectors):
    credit, directions, changes = vectors
    pairs = 32 * BATCH
    found = counted(perturbation_correlation(credit, directions, changes))
    assert found == (pytest.approx(1, abs=1e-12), pairs, pairs)
    opposite = perturbation_correlation(-credit, directions, changes)
    assert opposite.value == pytest.approx(-1, abs=1e-12)
    noisy = credit + drawn(BATCH, WIDTH)
    predicted = np.einsum("mbd,bd->mb", directions.numpy(), noisy.numpy())
    expected = np.corrcoef(predicted.ravel(), changes.numpy().ravel() + 7)[0, 1]
    assert 0.5 < expected < 0.95
    found = perturbation_correlation(noisy, directions, changes + 7)
    assert found.value == pytest.approx(expected, rel=1e-10)


@torch.no_grad()
def test_float32_loses_the_change_of_the_loss_where_states_are_large(batch):
    learner = rough("dfa")
    single = replace(learner, network=learner.network.float(), state=learner.state.float())
    for factor, low, high in ((1.0, 0.99, 1.01), (1e5, -0.5, 0.5)):
        single.network.embed[1].weight.mul_(factor)
        block = measure_credits(single, batch[0].float(), batch[1]).blocks[1]
        assert block["rho_bp_at_input"].value > 0.99
        assert low < block["rho_bp_float32_at_input"].value < high


def test_rho_leaves_out_what_is_not_finite_and_is_absent_without_variance(vectors):
    credit, directions, changes = vectors
    pairs, same = 32 * BATCH, torch.full_like(changes, 0.3)
    absent = ((0 * credit, changes, pairs), (credit, same, pairs), (credit * math.nan, changes, 0))
    for a, c, valid in absent:
        measured = perturbation_correlation(a, directions, c)
        assert (measured.value, measured.n_valid) == (None, valid) and measured.reason
    credit[0], changes[5, 1] = math.nan, math.inf
    expected = (pytest.approx(1, abs=1e-12), pairs, pairs - 32 - 1)
    assert counted(perturbation_correlation(credit, directions, changes)) == expected


@pytest.mark.parametrize("architecture", ["resmlp", "vit_mini", "small_resnet"])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_loss_changes_follow_the_gradient_by_the_vector_of_any_kind_of_state(architecture, layer):
    network, (x, labels) = rough_learner(architecture).network.eval(), batch_of()
    h = trace(network, x, local=True).states[layer].detach()
    gradient = len(x) * reference(network, x, labels).gradients[layer]
    directions = unit_directions(6, layer, gradient, count=4)
    changes = loss_changes(network, layer, h, labels, directions, 1e-6)
    assert changes.shape == (4, len(x))
    expected = (directions * gradient).sum(dim=-1)
    torch.testing.assert_close(changes / 1e-6, expected, rtol=1e-3, atol=1e-4)


def test_nudging_is_the_mean_change_over_the_samples_that_have_a_direction(batch):
    network, (x, labels) = rough("dfa", depth=2).network, batch
    h = trace(network, x, local=True).states[1].detach()
    credit = drawn(BATCH, WIDTH)
    credit[0], credit[1, 2], credit[2] = 0, math.nan, math.inf
    r = credit[3:] / (credit[3:].square().mean(dim=1, keepdim=True).sqrt() + 1e-6)
    moved = network.split(1, h[3:] - 0.01 * r)[1], network.split(1, h[3:])[1]
    losses = [F.cross_entropy(network.head(state), labels[3:]).item() for state in moved]
    expected = (pytest.approx(losses[0] - losses[1], rel=1e-8), BATCH, BATCH - 3)
    assert counted(nudging(network, 1, h, labels, credit, 0.01)) == expected
    # Credits far below the floor of r change no loss, and no direction is judged by such a nudge.
    for nothing in (torch.zeros_like(credit), drawn(BATCH, WIDTH) * 1e-30):
        absent = nudging(network, 1, h, labels, nothing, 0.01)
        assert (absent.value, absent.n, absent.n_valid) == (None, BATCH, 0) and absent.reason


@pytest.mark.parametrize(("suffix", "behind"), [("", 1), ("_at_input", 0)])
def test_the_report_measures_at_the_declared_sizes_at_outputs_and_inputs(batch, suffix, behind):
    learner, (x, labels) = rough("dfa"), batch
    blocks, credits = measure_credits(learner, x, labels).blocks, block_credits(learner, x, labels)
    states = trace(learner.network, x, local=True).states
    for layer, (credit, block) in enumerate(zip(credits, blocks, strict=True)):
        state, h = layer + behind, states[layer + behind].detach()
        stream = generator(3, "audit", "directions", state)
        random = torch.randn(32, *credit.shape, dtype=torch.float64, generator=stream)
        directions = F.normalize(random, dim=-1)
        changes = loss_changes(learner.network, state, h, labels, directions, 1e-3)
        expected = perturbation_correlation(credit, directions, changes)
        found = counted(block[f"rho{suffix}"])
        assert found == (pytest.approx(expected.value, rel=1e-9), expected.n, expected.n_valid)
        nudge = nudging(learner.network, state, h, labels, credit, 0.01)
        assert block[f"nudging{suffix}"].value == pytest.approx(nudge.value, rel=1e-9)


def test_feedback_that_is_the_transposed_head_gives_gradients_far_above_the_fresh_feedback_null(
    batch,
):
    """Blocks add nothing and there is no terminal norm: credits are gradients."""
    learner = rough("dfa", terminal_norm=False)
    for index, block in enumerate(learner.network.blocks):
        nn.init.zeros_(block.outer.weight)
        learner.state[index].copy_(learner.network.head.linear.weight.detach().T)
    report = measure_credits(learner, *batch)
    for block in report.blocks:
        assert block["cosine"].value == pytest.approx(1, abs=1e-5)
        assert block["rho"].value == pytest.approx(block["rho_bp"].value, abs=1e-9)
        assert block["rho"].value > 0.9999 and block["nudging"].value < 0
    assert report.deep["cosine"].value > report.deep["fresh_b_null"].interval[1] + 0.1


def test_draws_have_numpys_mean_and_unbiased_spread():
    values = [0.1, -0.4, 0.25, 0.9]
    mean, std = np.mean(values), np.std(values, ddof=1)
    absent = Measured(None, 5, 0, "why")
    draws = over_draws([*(Measured(value, 5, 5) for value in values), absent])
    assert counted(draws) == (pytest.approx(mean), 5, 4) and draws.std == pytest.approx(std)
    assert draws.interval == pytest.approx((mean - 1.96 * std, mean + 1.96 * std))
    assert over_draws([Measured(0.5, 5, 5)]) == Measured(0.5, 1, 1)
    assert over_draws([absent]) == Measured(None, 1, 0, "why")
    assert over_draws([], "none") == Measured(None, 0, 0, "none")


def test_the_deep_mean_leaves_out_the_first_block_and_what_is_absent():
    first, absent = Measured(9.0, 5, 5), Measured(None, 5, 0, "why")
    blocks = [first, Measured(1.0, 5, 5), absent, Measured(2.0, 5, 4)]
    assert deep_mean([{"x": block} for block in blocks], "x") == Measured(1.5, 3, 2)
    assert deep_mean([{"x": first}, {"x": absent}], "x") == Measured(None, 1, 0, "why")


def test_the_bridge_residual_is_the_mean_over_samples_of_the_method_s_own(batch):
    learner = rough("state_bridge")
    run = trace(learner.network, batch[0], local=True)
    expected = learner.method.bridge_residual(
        learner.network, run, batch[1], learner.state, torch.Generator()
    )
    report = measure_credits(learner, *batch)
    for block, residual in zip(report.blocks, expected, strict=True):
        expected = (pytest.approx(residual.mean().item(), rel=1e-5), BATCH, BATCH)
        assert counted(block["bridge_residual"]) == expected
    x, labels = batch
    x[0] = math.nan
    assert [entry.n_valid for entry in bridge_residuals(learner, x, labels)] == [BATCH - 1] * 3


def test_drift_is_the_relative_change_in_the_frobenius_norm():
    before, after = torch.tensor([[3.0, 0.0], [0.0, 4.0]]), torch.tensor([[3.0, 2.0], [0.0, 4.0]])
    assert counted(drift(before, after)) == (pytest.approx(2 / 5), 4, 4)
    assert drift(1e-30 * before, 1e-30 * after).value == pytest.approx(2 / 5)
    spoilt = drift(before, after / torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    assert (spoilt.value, spoilt.n_valid) == (None, 3) and "finite" in spoilt.reason


def test_every_parameter_and_every_block_has_its_drift(make_spec):
    learner = build(make_spec("dfa"), SHAPE, CLASSES)
    block = learner.network.blocks[1]
    share = block.inner.weight.norm() / torch.cat([p.flatten() for p in block.parameters()]).norm()
    block.inner.weight.data *= 1.5
    by_name, blocks = feature_drift(learner)
    assert by_name.keys() == dict(learner.network.named_parameters()).keys()
    moved = {name: entry.value for name, entry in by_name.items() if entry.value != 0}
    assert moved.pop("blocks.1.inner.weight") == pytest.approx(0.5, rel=1e-6)
    # Biases begin at zero.
    assert set(moved.values()) == {None}
    assert [entry.value for entry in blocks] == [0, pytest.approx(0.5 * share.item(), rel=1e-6), 0]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gets_every_metric_or_a_reason_and_stays_as_it_was(batch, method):
    learner = rough(method)
    learn(learner, *batch, torch.Generator())
    before = snapshot(learner.network)
    first = measure_credits(learner, *batch)
    assert snapshot(learner.network) == before
    torch.rand(3)
    assert measure_credits(learner, *batch) == first
    other_seed = replace(learner, spec=replace(learner.spec, seed=9))
    assert measure_credits(other_seed, *batch).blocks[0]["rho"] != first.blocks[0]["rho"]
    assert set(first.deep) == {*DEEP, "fresh_b_null", "fresh_b_null_at_input"}
    absent = set() if method.endswith("bridge") else {"bridge_residual"}
    if not learner.method.random_feedback:
        absent |= {"fresh_b_cosine", "fresh_b_cosine_at_input"}
    for block in first.blocks:
        assert set(block) == PER_BLOCK
        assert {name for name, entry in block.items() if entry.reason} == absent
    null = first.deep["fresh_b_null"]
    assert (null.value is None) == (not learner.method.random_feedback) == bool(null.reason)


@pytest.mark.parametrize(
    ("state", "kept"), [(0, (True, True)), (1, (True, False)), (2, (False, False)), (3, (False, True))]
)  # fmt: skip
def test_a_null_needs_the_gradient_of_every_block_but_the_first(state, kept):
    """Block l of three is compared at its output l + 1 and at its input l."""
    measured = Measured(0.1, 20, 20, std=0.1)
    names = ("fresh_b_null", "fresh_b_null_at_input")
    report = CreditReport(({},) * 3, dict.fromkeys(names, measured))
    deep = report.without({state: "untrue"}).deep
    assert tuple(deep[name].value is not None for name in names) == kept
