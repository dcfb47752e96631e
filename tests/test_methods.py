"""Transported, mirrored and projected credits against formulas written out in float64.

The promises that all methods share are checked by the conformance suite, `fa_audit.testing`.
"""

import copy
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fa_audit.core.randomness import seeded
from fa_audit.methods import METHODS
from fa_audit.methods.transport import fan_in
from fa_audit.networks.network import Network
from fa_audit.networks.trace import trace
from fa_audit.training.learner import Learner, build, learn, load_method

SHAPE, CLASSES, BATCH = (1, 4, 4), 3, 7
SIGNS = ("usf", "frsf", "brsf")
TRANSPORTED = (*SIGNS, "kolen_pollack")


def batch_of(seed, count=BATCH):
    randomness = torch.Generator().manual_seed(seed)
    x = torch.randn(count, *SHAPE, dtype=torch.float64, generator=randomness)
    return x, torch.randint(CLASSES, (count,), generator=randomness)


@pytest.fixture
def batch():
    return batch_of(1)


def double_learner(spec):
    """A learner in float64 whose blocks and norms are far from their near-trivial initialisation."""
    learner, randomness = build(spec, SHAPE, CLASSES), torch.Generator().manual_seed(6)
    with torch.no_grad():
        for parameter in learner.network.double().blocks.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=randomness))
    learner.state.double()
    return learner


def credits_of(learner, x, labels):
    run = trace(learner.network, x, local=not learner.method.end_to_end)
    return learner.method.credits(learner.network, run, labels, learner.state)


def in_order(credits):
    """The credits of embedding and blocks, bottom to top."""
    return [credits.embedding, *credits.blocks]


# --- transported credits ---------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """A block that holds its own skip and an activation after it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, h):
        return F.gelu(h + self.inner(h))


class Chain(Network):
    """Blocks of linear layers on vectors or of convolutions on feature maps, with any kind of skip."""

    def __init__(self, skip, convolutional):
        super().__init__()
        self.skip, self.width, self.classes = skip, 6, CLASSES
        blocks = [self.convolutions() if convolutional else self.matrices() for _ in range(3)]
        self.blocks = nn.ModuleList(Residual(block) if skip == "inside" else block for block in blocks)
        flat = nn.Sequential(nn.Flatten(), nn.Linear(16, 6))
        self.embed = nn.Conv2d(1, 6, 3, padding=1) if convolutional else flat
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(6 * 16 if convolutional else 6, CLASSES))

    def matrices(self):
        return nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 6, bias=False))

    def convolutions(self):
        return nn.Sequential(nn.Conv2d(6, 4, 3, padding=1), nn.GELU(), nn.Conv2d(4, 6, (1, 3), padding=(0, 1)))


def chain(skip, convolutional):
    with seeded(5):
        return Chain(skip, convolutional).double()


def true_gradients(network, x, labels):
    """Vectors ``dCE/dh_l`` of the batch-mean loss; a map's vector is a mean, its gradient a sum over positions."""
    states = [network.embed(x)]
    for block in network.blocks:
        out = block(states[-1])
        states.append(states[-1] + out if network.skip == "outside" else out)
    gradients = torch.autograd.grad(F.cross_entropy(network.head(states[-1]), labels), states)
    return [g.flatten(2).sum(dim=2) if g.dim() == 4 else g for g in gradients]


@torch.no_grad()
def with_true_feedback(method_name, network, gain):
    """The method with feedback of `gain` times the weights; as usf's is given, its weights are moved instead."""
    method = load_method(method_name)
    state = method.init_state(network, torch.Generator().manual_seed(0)).double()
    partners = [*state.buffers(), *state.parameters()]
    for index, weight in enumerate(p for p in network.blocks.parameters() if p.dim() > 1):
        if method_name == "usf":
            weight.copy_(weight.sign() / (weight.numel() / weight.shape[0]) ** 0.5 / gain)
        else:
            partners[index].copy_(gain * (weight if method_name == "kolen_pollack" else weight.abs()))
    return method, state


@pytest.mark.parametrize("convolutional", [False, True])
@pytest.mark.parametrize("skip, gain", [("outside", 1), ("inside", 1), ("none", 1), ("none", 3)])
@pytest.mark.parametrize("method", TRANSPORTED)
def test_true_weights_transport_backpropagation_s_credits(make_spec, batch, method, skip, gain, convolutional):
    network = chain(skip, convolutional)
    learner = Learner(make_spec(method), SHAPE, network, *with_true_feedback(method, network, gain))
    credits, g = credits_of(learner, *batch), true_gradients(network, *batch)
    scaled = [gain ** (2 * (3 - layer)) * gradient for layer, gradient in enumerate(g)]  # two weights in each block
    torch.testing.assert_close(in_order(credits), scaled, rtol=1e-10, atol=1e-15)
    assert credits.normalise


def feedback_of(learner, layer, name):
    """What the method puts in the place of a weight, from its definition."""
    weight = getattr(learner.network.blocks[layer], name).weight.detach()
    sign = torch.where(weight > 0, 1.0, -1.0).double()
    if learner.spec.method == "usf":
        return sign / weight.shape[1] ** 0.5
    partner = getattr(learner.state, f"{layer}_{name}_weight").detach()
    return partner if learner.spec.method == "kolen_pollack" else sign * partner


def through_layer_norm(norm, h, slope):
    """The gradient by `h` from the gradient `slope` by ``LN(h)``."""
    centred = h - h.mean(dim=1, keepdim=True)
    deviation = ((centred**2).mean(dim=1, keepdim=True) + norm.eps).sqrt()
    z, dz = centred / deviation, slope * norm.weight
    return (dz - dz.mean(dim=1, keepdim=True) - z * (dz * z).mean(dim=1, keepdim=True)) / deviation


@torch.no_grad()
def hand_credits(learner, x, labels):
    """Bottom to top: every W on the way back replaced, activation slopes taken at what W itself computes."""
    network, h, inner = learner.network, [learner.network.embed(x)], []
    for block in network.blocks:
        inner.append(block.norm(h[-1]) @ block.inner.weight.T + block.inner.bias)
        f = F.gelu(inner[-1]) @ block.outer.weight.T + block.outer.bias
        h.append(h[-1] + f if network.skip == "outside" else f)
    error = network.head(h[-1]).softmax(dim=1) - F.one_hot(labels, CLASSES)
    credits = [through_layer_norm(network.head.norm, h[-1], error @ network.head.linear.weight) / len(labels)]
    for layer, block in reversed(list(enumerate(network.blocks))):
        u = inner[layer]
        slope = (1 + torch.erf(u / 2**0.5)) / 2 + u * torch.exp(-u * u / 2) / (2 * torch.pi) ** 0.5
        down = (credits[0] @ feedback_of(learner, layer, "outer") * slope) @ feedback_of(learner, layer, "inner")
        down = through_layer_norm(block.norm, h[layer], down)
        credits.insert(0, credits[0] + down if network.skip == "outside" else down)
    return credits


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("method", TRANSPORTED)
def test_transported_credits_are_those_of_the_written_out_chain(make_spec, batch, method, residual):
    learner = double_learner(make_spec(method, residual=residual))
    found, expected = in_order(credits_of(learner, *batch)), hand_credits(learner, *batch)
    for credit, hand in zip(found, expected, strict=True):
        torch.testing.assert_close(credit, hand, rtol=1e-9, atol=1e-12 * hand.abs().max().item())


def test_random_magnitudes_are_half_normal_with_variance_of_one_over_fan_in(make_spec):
    assert [fan_in(torch.zeros(shape)) for shape in ((7, 5), (7, 5, 3, 2))] == [5, 30]
    for method in ("frsf", "brsf"):
        state = build(make_spec(method, width=200, depth=1), SHAPE, CLASSES).state
        assert [tuple(b.shape) for b in state.buffers()] == [(200, 200)] * 2
        for magnitudes in state.buffers():
            assert (magnitudes > 0).all()
            assert magnitudes.square().mean().item() == pytest.approx(1 / 200, rel=0.03)
            assert magnitudes.mean().item() == pytest.approx((2 / torch.pi / 200) ** 0.5, rel=0.02)
        assert not torch.equal(*state.buffers())


def test_brsf_draws_at_every_minibatch_from_its_generator_alone(make_spec, batch):
    learner, fixed = (double_learner(make_spec(method)) for method in ("brsf", "frsf"))
    twin, before = copy.deepcopy(learner), torch.get_rng_state()
    frozen, randomness = [b.clone() for b in fixed.state.buffers()], torch.Generator().manual_seed(4)
    drawn = [[b.clone() for b in learner.state.buffers()]]
    for _ in range(3):
        learn(learner, *batch, randomness)
        learn(fixed, *batch, randomness)
        drawn.append([b.clone() for b in learner.state.buffers()])
    assert all(not (a == b).any() for old, new in pairwise(drawn) for a, b in zip(old, new, strict=True))
    assert all(map(torch.equal, fixed.state.buffers(), frozen)) and torch.equal(torch.get_rng_state(), before)
    with seeded(99):
        learn(twin, *batch, torch.Generator().manual_seed(4))
    assert all(map(torch.equal, twin.state.buffers(), drawn[1]))


# --- Kolen-Pollack ---------------------------------------------------------------------------------------------------


def partners(learner):
    """``(name, W, B)`` of every weight of the blocks."""
    named = [(n, p) for n, p in learner.network.blocks.named_parameters() if p.dim() > 1]
    return [(n, w.detach(), learner.state.get_parameter(n.replace(".", "_")).detach()) for n, w in named]


def gaps(learner):
    return {name: w - b for name, w, b in partners(learner)}


def take_steps(learner, count):
    optimiser, randomness = learner.optimiser(), torch.Generator()
    for step in range(count):
        optimiser.zero_grad()
        learn(learner, *batch_of(100 + step), randomness)
        optimiser.step()


@pytest.mark.parametrize("steps, lr, decay, penalty", [(1, 0.01, 0.1, 0), (25, 3e-3, 0.5, 0.1), (150, 0.05, 2.0, 0)])
def test_forward_and_feedback_weights_converge_by_the_decay_alone(make_spec, steps, lr, decay, penalty):
    learner = double_learner(make_spec("kolen_pollack", lr=lr, weight_decay=decay, penalty=penalty))
    start, weights = gaps(learner), [w.clone() for _, w, _ in partners(learner)]
    take_steps(learner, steps)
    for name, gap in gaps(learner).items():
        torch.testing.assert_close(gap, (1 - lr * decay) ** steps * start[name], rtol=0, atol=1e-13)
    assert all((w - old).abs().max() > 1e-3 for (_, w, _), old in zip(partners(learner), weights, strict=True))
    if steps == 150:
        assert max(gap.abs().max().item() for gap in gaps(learner).values()) < 1e-6


def test_frozen_blocks_keep_forward_and_feedback_weights(make_spec):
    learner = double_learner(make_spec("kolen_pollack", frozen_blocks=2, weight_decay=0.5, lr=0.01))
    before = [(name, w.clone(), b.clone()) for name, w, b in partners(learner)]
    take_steps(learner, 3)
    for (name, w, b), (_, old_w, old_b) in zip(partners(learner), before, strict=True):
        assert torch.equal(w, old_w) == torch.equal(b, old_b) == (not name.startswith("2.")), name


def test_feedback_weights_follow_teaching_and_penalty(make_spec, batch):
    learner = double_learner(make_spec("kolen_pollack", penalty=0.3))
    network, (x, labels) = learner.network, batch
    credits, run = credits_of(learner, x, labels).blocks, trace(network, x, local=True)
    learn(learner, x, labels, torch.Generator())
    for layer, (block, a) in enumerate(zip(network.blocks, credits, strict=True)):
        r = a / ((a**2).mean(dim=1, keepdim=True).sqrt() + 1e-6)
        f = block(run.states[layer].detach())
        loss = ((f * r).sum(dim=1) + 0.3 * (f**2).sum(dim=1)).mean()
        slopes = torch.autograd.grad(loss, (block.inner.weight, block.outer.weight))
        for name, slope in zip(("inner", "outer"), slopes, strict=True):
            found = learner.state.get_parameter(f"{layer}_{name}_weight").grad
            torch.testing.assert_close(found, slope, rtol=1e-10, atol=1e-14)


# --- direct random target projection ---------------------------------------------------------------------------------


def test_drtp_projects_the_label_through_each_block_s_matrix(make_spec, batch):
    learner = double_learner(make_spec("drtp"))
    b, credits = [learner.state.get_buffer(f"B{layer}") for layer in range(3)], credits_of(learner, *batch)
    for row, label in enumerate(batch[1]):
        hand = [matrix.mean(dim=1) - matrix[:, label] for matrix in (b[0], *b)]
        torch.testing.assert_close([credit[row] for credit in in_order(credits)], hand, rtol=1e-12, atol=1e-15)


def test_drtp_needs_no_output_and_no_weight_of_the_network(make_spec, batch):
    learner, (x, labels) = double_learner(make_spec("drtp")), batch
    credits = in_order(credits_of(learner, x, labels))
    for parameter in learner.network.parameters():
        parameter.data.mul_(-3).add_(1)
    assert all(map(torch.equal, in_order(credits_of(learner, x.square() + 1, labels)), credits))
    others = in_order(credits_of(learner, x, (labels + 1) % CLASSES))
    assert all(((a - b).abs().amax(dim=1) > 1e-3).all() for a, b in zip(credits, others, strict=True))


# --- random feedback -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [name for name in METHODS if load_method(name).random_feedback])
def test_random_feedback_comes_from_the_generator_alone(make_spec, batch, method):
    learner, credits = double_learner(make_spec(method)), []
    for seed in (1, 1, 2):
        before = torch.get_rng_state()
        state = learner.method.init_state(learner.network, torch.Generator().manual_seed(seed)).double()
        assert torch.equal(torch.get_rng_state(), before)
        drawn = Learner(learner.spec, SHAPE, learner.network, learner.method, state)
        credits.append(credits_of(drawn, *batch).embedding)
    assert torch.equal(credits[0], credits[1]) and not torch.allclose(credits[0], credits[2], rtol=1e-3)
