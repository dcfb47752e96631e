"""State and credit bridge: their nets written out, their credits as finite differences, their
losses as sums.
"""

import math
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from networks import spec_of
from torch import nn

from fa_audit.methods.credit_bridge import CreditBridge, soft_minimum
from fa_audit.methods.state_bridge import StateBridge
from fa_audit.networks.trace import trace
from fa_audit.training.learner import build, learn
from fa_audit.training.loop import train

SHAPE, CLASSES, WIDTH, HIDDEN = (1, 4, 4), 3, 8, 16
STATE = StateBridge(hidden=HIDDEN)
CREDIT = CreditBridge(hidden=HIDDEN, tau=0.3, draws=4, sigma=0.2, memory=0.9)
BRIDGES = pytest.mark.parametrize("method", [STATE, CREDIT], ids=["state", "credit"])
SHAPED = ["standard", "no skip", "no norm", "feature maps"]
KINDS = pytest.mark.parametrize("kind", SHAPED)


@pytest.fixture
def make_learner():
    """Learners in float64, with parameters far from their initialisation and a net after its
    warm-up.
    """

    def make(method, kind="standard", **options):
        if kind == "feature maps":
            spec = spec_of("small_resnet", **options)
        else:
            spec = spec_of(
                "resmlp", residual=kind != "no skip", terminal_norm=kind != "no norm", **options
            )
        learner, randomness = build(spec, SHAPE, CLASSES, method), torch.Generator().manual_seed(2)
        for module in (learner.network.double(), learner.state.double()):
            for parameter in module.parameters():
                parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=randomness))
        method.begin_epoch(learner.state, 0.5)
        return learner

    return make


def net(module, h, t, error):
    """``[LN(h), t, s]``, three hidden layers of GELU units, a linear output."""
    centred = h - h.mean(dim=1, keepdim=True)
    z = centred / ((centred**2).mean(dim=1, keepdim=True) + 1e-5).sqrt()
    a = torch.cat([z, torch.full((len(h), 1), t, dtype=h.dtype), error], dim=1)
    *hidden, last = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    for layer in hidden:
        u = a @ layer.weight.T + layer.bias
        a = u * (1 + torch.erf(u / 2**0.5)) / 2
    return a @ last.weight.T + last.bias


class ByHand:
    """States as vectors, output error and per-sample losses of a batch, from the network's own
    parts.
    """

    def __init__(self, learner, x, labels):
        self.learner, self.labels = learner, labels
        network, states = learner.network, [learner.network.embed(x)]
        for block in network.blocks:
            states.append(block(states[-1]) + (states[-1] if network.skip == "outside" else 0))
        self.top, self.depth = states[-1].detach(), max(len(network.blocks), 1)
        self.vectors = [h.detach().mean(dim=(2, 3)) if h.dim() == 4 else h.detach() for h in states]
        self.error = network.head(self.top).softmax(dim=1).detach() - F.one_hot(labels, CLASSES)
        self.losses = self.loss(self.top)

    def spread(self, vector):
        return vector[:, :, None, None] if self.top.dim() == 4 else vector

    def loss(self, top):
        with torch.no_grad():
            return F.cross_entropy(self.learner.network.head(top), self.labels, reduction="none")

    def predicted_loss(self, h, layer):
        """``CE(head(G(h)))`` of each sample; of a feature map, G predicts one position."""
        return self.loss(self.spread(net(self.learner.state, h, layer / self.depth, self.error)))

    def value(self, h, layer, net_name="value"):
        """``V`` of each sample, or its moving average's."""
        return net(getattr(self.learner.state, net_name), h, layer / self.depth, self.error)[
            :, 0
        ].detach()

    def true_slope(self):
        """``g_L`` of the per-sample loss, by moving all positions alike."""
        return differences(
            lambda d: self.loss(self.top + self.spread(d)), torch.zeros_like(self.vectors[-1])
        )

    def soft_minima(self, randomness):
        """The target of every ``V(h_l)``, l < L, in the order in which the library draws its noise."""
        method, depth = self.learner.method, len(self.vectors) - 1
        noise = torch.randn(
            method.draws, depth, *self.vectors[0].shape, generator=randomness
        ).double()
        targets = []
        for layer, h in enumerate(self.vectors[1:]):
            scale = method.sigma * (h**2).mean(dim=1, keepdim=True) ** 0.5
            values = [self.value(h + scale * xi[layer], layer + 1, "average") for xi in noise]
            mean = sum(torch.exp(-v / method.tau) for v in values) / method.draws
            targets.append(-method.tau * mean.log())
        return targets


def differences(function, h, step=1e-5):
    """Central differences of ``(B,)``-valued `function` by the features of `h`, ``(B, d)``."""
    moves = step * torch.eye(h.shape[1], dtype=h.dtype)
    return torch.stack(
        [(function(h + move) - function(h - move)) / (2 * step) for move in moves], dim=1
    )


def arguments(learner, x, labels):
    """What all functions of a method take first."""
    return learner.network, trace(learner.network, x, local=True), labels, learner.state


def loss_of(learner, x, labels, seed=9):
    randomness = torch.Generator().manual_seed(seed)
    return learner.method.auxiliary_loss(*arguments(learner, x, labels), randomness)


@pytest.mark.parametrize("kind", [*SHAPED, "shallow"])
@BRIDGES
def test_credits_are_finite_differences_of_what_the_net_predicts(make_learner, batch, method, kind):
    learner = make_learner(method, kind, shallow=kind == "shallow")
    hand, credits = ByHand(learner, *batch), method.credits(*arguments(learner, *batch))
    predicted = hand.predicted_loss if method is STATE else hand.value
    assert (
        credits.normalise
        and credits.objective is None
        and len(credits.blocks) == 2 * (kind != "shallow")
    )
    for layer, credit in enumerate((credits.embedding, *credits.blocks[1:])):
        slopes = differences(lambda h, layer=layer: predicted(h, layer), hand.vectors[layer])
        torch.testing.assert_close(credit, slopes, rtol=1e-6, atol=1e-8)
    assert slopes.abs().max() > 1e-3
    assert all(torch.equal(credits.embedding, credit) for credit in credits.blocks[:1])


@KINDS
def test_the_state_bridge_fits_the_last_state_at_unit_rms(make_learner, batch, kind):
    learner = make_learner(STATE, kind)
    hand = ByHand(learner, *batch)
    target = hand.vectors[-1] / (hand.vectors[-1] ** 2).mean(dim=1, keepdim=True) ** 0.5
    misses = [
        net(learner.state, hand.vectors[layer], layer / 2, hand.error) - target
        for layer in range(2)
    ]
    by_hand = sum((miss**2).mean() for miss in misses) / 2
    torch.testing.assert_close(loss_of(learner, *batch), by_hand, rtol=1e-11, atol=0)
    residual = STATE.bridge_residual(*arguments(learner, *batch), torch.Generator())
    torch.testing.assert_close(list(residual), [miss.abs().mean(dim=1).detach() for miss in misses])


def credit_loss(hand, seed=9):
    """Values against their targets and the top slope against the truth, summed up by hand."""
    depth = len(hand.vectors) - 1
    targets = [*hand.soft_minima(torch.Generator().manual_seed(seed)), hand.losses]
    values = [hand.value(h, layer) for layer, h in enumerate(hand.vectors)]
    top = hand.vectors[-1]
    slope = differences(lambda h: hand.value(h, depth), top)
    scaled = (top**2).sum(dim=1, keepdim=True).sqrt() * (slope - hand.true_slope())
    squares = torch.cat([(v - target) ** 2 for v, target in zip(values, targets, strict=True)])
    return squares.mean() + (scaled**2).mean()


@KINDS
def test_the_credit_bridge_s_loss_is_that_of_its_definition(make_learner, batch, kind):
    learner = make_learner(CREDIT, kind)
    found, by_hand = loss_of(learner, *batch), credit_loss(ByHand(learner, *batch))
    torch.testing.assert_close(found.detach(), by_hand, rtol=1e-7, atol=0)
    assert abs(loss_of(learner, *batch, seed=8).item() / by_hand.item() - 1) > 1e-6


@KINDS
@BRIDGES
def test_the_net_descends_the_slope_of_its_loss(make_learner, batch, method, kind):
    """Finite differences of the loss along every parameter's own gradient; second derivatives reach
    them all.
    """
    learner = make_learner(method, kind)
    trained = {name: p for name, p in learner.state.named_parameters() if p.requires_grad}
    slopes = torch.autograd.grad(loss_of(learner, *batch), list(trained.values()))
    assert len(trained) == 8
    for (name, parameter), slope in zip(trained.items(), slopes, strict=True):
        direction, ends = slope / slope.norm(), []
        for step in (1e-5, -2e-5):
            parameter.data.add_(step * direction)
            ends.append(loss_of(learner, *batch).item())
        parameter.data.add_(1e-5 * direction)
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(slope.norm().item(), rel=1e-5), name


def test_the_moving_average_follows_once_a_minibatch(make_learner, batch):
    state = (learner := make_learner(CREDIT)).state
    before = [v.clone() for v in state.value.parameters()]
    expected = [0.9 * a + 0.1 * v for a, v in zip(state.average.parameters(), before, strict=True)]
    learn(learner, *batch, torch.Generator())
    torch.testing.assert_close(list(state.average.parameters()), expected, rtol=1e-14, atol=1e-15)
    assert all(map(torch.equal, state.value.parameters(), before))
    assert not any(p.requires_grad or p.grad is not None for p in state.average.parameters())
    fresh = build(learner.spec, SHAPE, CLASSES, CREDIT).state
    assert all(map(torch.equal, fresh.average.parameters(), fresh.value.parameters()))


@dataclass(frozen=True)
class Recording(CreditBridge):
    """Notes for every batch whether its credits are the output error through the warm-up's
    matrices.
    """

    direct: list = field(default_factory=list)

    def credits(self, network, trace, labels, state):
        found = super().credits(network, trace, labels, state)
        error = trace.logits.detach().softmax(dim=1) - F.one_hot(labels, CLASSES)
        matrices = [state.feedback.get_buffer(f"B{layer}") for layer in range(3)]
        pairs = zip((found.embedding, *found.blocks), (matrices[0], *matrices), strict=True)
        self.direct.append(
            all(torch.allclose(a, error @ b.T, rtol=1e-5, atol=1e-6) for a, b in pairs)
        )
        return found


@pytest.mark.parametrize(("epochs", "warm"), [(1, 1), (5, 1), (6, 2)])
def test_the_first_fifth_of_the_epochs_learns_from_dfa(make_spec, dataset, epochs, warm):
    method = Recording(hidden=HIDDEN)
    train(make_spec("credit_bridge", epochs=epochs), dataset, method=method)
    per_epoch = 4 + 1  # minibatches, and the epoch's observation
    trial = 1  # before the first step
    assert method.direct == [True] * (trial + warm * per_epoch) + [False] * (
        (epochs - warm) * per_epoch
    )


@pytest.mark.parametrize("tau", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize(
    ("values", "expected"), [([0.0, 1e6], math.log(2)), ([-1e6], -1e6), ([0.5, 0.5], 0.5)]
)
def test_the_soft_minimum_is_a_log_of_a_mean_and_never_overflows(values, expected, tau):
    found = soft_minimum(tau * torch.tensor(values, dtype=torch.float64), tau).item()
    assert found == pytest.approx(tau * expected, rel=1e-12)
