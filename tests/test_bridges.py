"""State and credit bridge without blocks, their residuals, moving average and warm-up. Their
credits and steps are in `plain_rules`.
"""

import math
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from learners import credits_of
from networks import assert_same, spec_of
from plain_rules import bridge_net

from fa_audit.methods.credit_bridge import CreditBridge, soft_minimum
from fa_audit.methods.state_bridge import StateBridge
from fa_audit.training.learner import build, learn
from fa_audit.training.loop import train

SHAPE, CLASSES, HIDDEN = (1, 4, 4), 3, 16
STATE = StateBridge(hidden=HIDDEN)
CREDIT = CreditBridge(hidden=HIDDEN, tau=0.3, draws=4, sigma=0.2, memory=0.9)


@pytest.fixture
def make_learner():
    """Learners in float64, with parameters far from their initialisation and a net after its
    warm-up.
    """

    def make(method, **options):
        learner = build(spec_of("resmlp", **options), SHAPE, CLASSES, method)
        randomness = torch.Generator().manual_seed(2)
        for module in (learner.network.double(), learner.state.double()):
            for parameter in module.parameters():
                parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=randomness))
        method.begin_epoch(learner.state, 0.5)
        return learner

    return make


@pytest.mark.parametrize("method", [STATE, CREDIT], ids=["state", "credit"])
def test_credits_without_blocks_are_slopes_of_what_the_net_makes_of_the_only_state(
    make_learner, batch, method
):
    learner = make_learner(method, shallow=True)
    network, (x, labels) = learner.network, batch
    credits = credits_of(learner, x, labels)
    h = network.embed(x).detach().requires_grad_()
    error = (network.head(h).softmax(dim=1) - F.one_hot(labels, CLASSES)).detach()
    if method is STATE:
        predicted = network.head(bridge_net(learner.state, h, 0.0, error))
        value = F.cross_entropy(predicted, labels, reduction="sum")
    else:
        value = bridge_net(learner.state.value, h, 0.0, error).sum()
    assert credits.blocks == () and credits.normalise and credits.objective is None
    assert_same(credits.embedding, *torch.autograd.grad(value, h))


def test_residuals_are_the_misses_of_every_block(make_learner, batch):
    learner = make_learner(STATE)
    run, randomness = learner.trace(batch[0]), torch.Generator()
    found = STATE.bridge_residual(learner.network, run, batch[1], learner.state, randomness)
    error = (run.logits.softmax(dim=1) - F.one_hot(batch[1], CLASSES)).detach()
    target = run.states[-1] / run.states[-1].square().mean(dim=1, keepdim=True).sqrt()
    for layer, residual in enumerate(found):
        h = run.states[layer].detach()
        miss = bridge_net(learner.state, h, layer / 2, error) - target
        assert_same(residual, miss.abs().mean(dim=1).detach())


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
