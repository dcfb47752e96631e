"""State and credit bridge without blocks, their residuals, moving average and warm-up. Their
credits and steps are in `plain_rules`.
"""

import math
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from networks import CLASSES, assert_same, batch_of, credits_of, learner_of
from plain_rules import bridge_net

from fa_audit.methods.credit_bridge import CreditBridge, soft_minimum
from fa_audit.training.loop import train

BATCH = batch_of()


def warm_learner(name, **options):
    """A learner after the warm-up of its net."""
    learner = learner_of(name, **options)
    learner.method.begin_epoch(learner.state, 0.5)
    return learner


@pytest.mark.parametrize("name", ["state_bridge", "credit_bridge"])
def test_credits_without_blocks_are_slopes_of_what_the_net_makes_of_the_only_state(name):
    learner, (x, labels) = warm_learner(name, shallow=True), BATCH
    network, credits = learner.network, credits_of(learner, x, labels)
    h = network.embed(x).detach().requires_grad_()
    error = (network.head(h).softmax(dim=1) - F.one_hot(labels, CLASSES)).detach()
    if name == "state_bridge":
        predicted = network.head(bridge_net(learner.state, h, 0.0, error))
        value = F.cross_entropy(predicted, labels, reduction="sum")
    else:
        value = bridge_net(learner.state.value, h, 0.0, error).sum()
    assert credits.blocks == () and credits.normalise and credits.objective is None
    assert_same(credits.embedding, *torch.autograd.grad(value, h))


def test_residuals_are_the_misses_of_every_block():
    learner, (x, labels) = warm_learner("state_bridge"), BATCH
    run, noise = learner.trace(x), torch.Generator()
    found = learner.method.bridge_residual(learner.network, run, labels, learner.state, noise)
    error = (run.logits.softmax(dim=1) - F.one_hot(labels, CLASSES)).detach()
    target = run.states[-1] / run.states[-1].square().mean(dim=1, keepdim=True).sqrt()
    for layer, residual in enumerate(found):
        miss = bridge_net(learner.state, run.states[layer].detach(), layer / 3, error) - target
        assert_same(residual, miss.abs().mean(dim=1).detach())


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
        expected = [error @ b.T for b in (matrices[0], *matrices)]
        pairs = zip((found.embedding, *found.blocks), expected, strict=True)
        self.direct.append(all(torch.allclose(*pair, rtol=1e-5, atol=1e-6) for pair in pairs))
        return found


@pytest.mark.parametrize(("epochs", "warm"), [(1, 1), (5, 1), (6, 2)])
def test_the_first_fifth_of_the_epochs_learns_from_dfa(make_spec, dataset, epochs, warm):
    method = Recording()
    train(make_spec("credit_bridge", epochs=epochs), dataset, method=method)
    per_epoch = 4 + 1  # minibatches, and the epoch's observation
    # One before the first step.
    assert method.direct[: 1 + warm * per_epoch] == [True] * (1 + warm * per_epoch)
    assert method.direct[1 + warm * per_epoch :] == [False] * ((epochs - warm) * per_epoch)


@pytest.mark.parametrize("tau", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize(
    ("values", "expected"), [([0.0, 1e6], math.log(2)), ([-1e6], -1e6), ([0.5, 0.5], 0.5)]
)
def test_the_soft_minimum_is_a_log_of_a_mean_and_never_overflows(values, expected, tau):
    found = soft_minimum(tau * torch.tensor(values, dtype=torch.float64), tau).item()
    assert found == pytest.approx(tau * expected, rel=1e-12)
