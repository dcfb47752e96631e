"""Transported, mirrored and projected credits against formulas written out in float64.

The promises that all methods share are checked by the conformance suite, `fa_audit.testing`.
"""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from networks import batch_of, learner_of, listed_credits, rough_learner, take_steps
from test_own_networks import Feedback
from torch import nn

from fa_audit.core.errors import AuditError
from fa_audit.methods.method import load_method
from fa_audit.methods.transport import fan_in, partnered_weights
from fa_audit.training.learner import build, learn

SHAPE, CLASSES = (1, 4, 4), 3
LEARNED = ("kolen_pollack", "weight_mirror")
FIXED = ("fa_layerwise", *LEARNED)  # whose partners stand in place of the weights as they are
TRANSPORTED = ("usf", "frsf", "brsf", *FIXED)


def feedback_of(learner, name):
    """What the method puts in the place of a weight, from its definition."""
    weight = learner.network.get_parameter(f"{name}.weight").detach()
    sign = torch.where(weight > 0, 1.0, -1.0).double()
    if learner.spec.method == "usf":
        return sign / weight[0].numel() ** 0.5
    partner = getattr(learner.state, f"{name.replace('.', '_')}_weight").detach()
    return partner if learner.spec.method in FIXED else sign * partner


def back_through(function, h, slope):
    """The gradient by `h` from the gradient `slope` by ``function(h)``."""
    return torch.autograd.functional.vjp(function, h, slope)[1]


@torch.no_grad()
def hand_credits(learner, x, labels):
    """Bottom to top: every W on the way back replaced, activation slopes taken at what W itself
    computes.
    """
    network, h, inner = learner.network, [learner.network.embed(x)], []
    for block in network.blocks:
        inner.append(block.norm(h[-1]) @ block.inner.weight.T + block.inner.bias)
        f = F.gelu(inner[-1]) @ block.outer.weight.T + block.outer.bias
        h.append(h[-1] + f if network.skip == "outside" else f)
    error = network.head(h[-1]).softmax(dim=1) - F.one_hot(labels, CLASSES)
    top = error @ feedback_of(learner, "head.linear") / len(labels)
    credits = [back_through(network.head.norm, h[-1], top)]
    for layer, block in reversed(list(enumerate(network.blocks))):
        down = back_through(
            F.gelu, inner[layer], credits[0] @ feedback_of(learner, f"blocks.{layer}.outer")
        )
        down = back_through(
            block.norm, h[layer], down @ feedback_of(learner, f"blocks.{layer}.inner")
        )
        credits.insert(0, credits[0] + down if network.skip == "outside" else down)
    return credits


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("method", TRANSPORTED)
def test_transported_credits_are_those_of_the_written_out_chain(batch, method, residual):
    learner = learner_of(method, residual=residual, shape=SHAPE)
    found, expected = listed_credits(learner, *batch), hand_credits(learner, *batch)
    for credit, hand in zip(found, expected, strict=True):
        torch.testing.assert_close(credit, hand, rtol=1e-9, atol=1e-12 * hand.abs().max().item())


@pytest.mark.parametrize("architecture", ["resmlp", "mlp"])
@pytest.mark.parametrize("method", TRANSPORTED)
def test_without_normalisation_every_gradient_is_that_of_backpropagation_through_partners(
    batch, method, architecture
):
    """Also within blocks and in the head, whose own layers precede its weights."""
    learner = learner_of(method, architecture, shape=SHAPE, normalise=False)
    twin = copy.deepcopy(learner.network)
    for name, layer in twin.named_modules():
        if isinstance(layer, nn.Linear) and not name.startswith("embed"):
            b = feedback_of(learner, name)
            layer.forward = partial(
                lambda x, layer, b: Feedback.apply(x, layer.weight, layer.bias, b), layer=layer, b=b
            )
    F.cross_entropy(twin(batch[0]), batch[1]).backward()
    learn(learner, *batch, torch.Generator())
    for name, p in twin.named_parameters():
        found = learner.network.get_parameter(name).grad
        torch.testing.assert_close(found, p.grad, rtol=1e-9, atol=1e-12, msg=name)


def test_random_magnitudes_are_half_normal_with_variance_of_one_over_fan_in(make_spec):
    assert [fan_in(torch.zeros(shape)) for shape in ((7, 5), (7, 5, 3, 2))] == [5, 30]
    for method in ("frsf", "brsf"):
        state = build(make_spec(method, width=200, depth=1), SHAPE, CLASSES).state
        assert [tuple(b.shape) for b in state.buffers()] == [(200, 200)] * 2 + [(CLASSES, 200)]
        one, other, _ = state.buffers()
        for magnitudes in (one, other):
            assert (magnitudes > 0).all()
            assert magnitudes.square().mean().item() == pytest.approx(1 / 200, rel=0.03)
            assert magnitudes.mean().item() == pytest.approx((2 / torch.pi / 200) ** 0.5, rel=0.02)
        assert not torch.equal(one, other)


def test_brsf_draws_at_every_minibatch_and_frsf_never(batch):
    learner, fixed = learner_of("brsf", shape=SHAPE), learner_of("frsf", shape=SHAPE)
    randomness = torch.Generator().manual_seed(4)
    for _ in range(3):
        before = [[b.clone() for b in each.state.buffers()] for each in (learner, fixed)]
        learn(learner, *batch, randomness)
        learn(fixed, *batch, randomness)
        assert not any((a == b).any() for a, b in zip(learner.state.buffers(), before[0]))
        assert all(map(torch.equal, fixed.state.buffers(), before[1]))


def test_frozen_blocks_keep_forward_and_feedback_weights():
    learner = learner_of("kolen_pollack", frozen_blocks=2, weight_decay=0.5, lr=0.01, shape=SHAPE)
    pairs = {}
    for name, w in partnered_weights(learner.network):
        pairs[name] = w, learner.state.get_parameter(name)
    before = {name: [p.detach().clone() for p in pair] for name, pair in pairs.items()}
    take_steps(learner, [batch_of(SHAPE, seed=100 + step) for step in range(3)])
    for name, pair in pairs.items():
        kept = [torch.equal(*each) for each in zip(pair, before[name])]
        assert kept == [not name.startswith(("blocks_2", "head"))] * 2, name


def test_drtp_projects_the_label_through_each_block_s_matrix(batch):
    learner = learner_of("drtp", shape=SHAPE)
    b = [learner.state.get_buffer(f"B{layer}") for layer in range(3)]
    hand = [(matrix.mean(dim=1, keepdim=True) - matrix[:, batch[1]]).T for matrix in (b[0], *b)]
    torch.testing.assert_close(listed_credits(learner, *batch), hand, rtol=1e-12, atol=1e-15)


class Attention(nn.Module):
    """A block whose projections are packed inside torch's attention."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, h):
        return self.attention(h[:, None], h[:, None], h[:, None], need_weights=False)[0][:, 0]


@pytest.mark.parametrize("method", TRANSPORTED)
def test_a_weight_whose_feedback_is_never_used_is_an_error(batch, method):
    learner = rough_learner("resmlp", shape=SHAPE)
    network, transported = learner.network.float(), load_method(method)
    network.blocks[1] = Attention()
    learner = replace(
        learner, method=transported, state=transported.init_state(network, torch.Generator())
    )
    with pytest.raises(AuditError, match=r"blocks\.1\.attention\.in_proj"):
        listed_credits(learner, batch[0].float(), batch[1])
