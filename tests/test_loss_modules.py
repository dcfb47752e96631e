"""Losses that are modules, and samples that a loss ignores."""

import copy

import pytest
import torch
import torch.nn.functional as F
from networks import assert_same_bits
from test_own_networks import Chain, linear
from torch import nn

from fa_audit import Description, bp_grad_norms, diagnose

BLOCKS = Description("layers.*", "all features")
CLASSES = 4


@pytest.fixture
def network():
    torch.manual_seed(2)
    blocks = [linear(8, 8) for _ in range(2)]
    return Chain(nn.Linear(6, 8), blocks, nn.Linear(8, CLASSES)).double()


def batch(samples=100):
    randomness = torch.Generator().manual_seed(5)
    x = torch.randn(samples, 6, generator=randomness, dtype=torch.float64)
    return x, torch.randint(CLASSES, (samples,), generator=randomness)


class Centred(nn.Module):
    """A cross-entropy of centred logits, whose centre and counter follow every batch, and a weight
    that learns.
    """

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(CLASSES, dtype=torch.float64))
        self.calls, self.weight = 0, nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, logits, labels):
        self.calls += 1
        self.centre = 0.9 * self.centre + 0.1 * logits.detach().mean(dim=0)
        self.centre.add_(1e-3)
        return self.weight.sum() * F.cross_entropy(logits - self.centre, labels)


def test_a_loss_module_is_left_as_it_was(network):
    loss = Centred()
    loss(torch.ones(3, CLASSES).double(), torch.arange(3)).backward()
    before, buffer, grad = copy.deepcopy(loss.state_dict()), loss.centre, loss.weight.grad
    diagnose(network, [batch()], 0.3, description=BLOCKS, loss_fn=loss)
    bp_grad_norms(network, *batch(), loss, description=BLOCKS)
    assert_same_bits(loss.state_dict(), before)
    assert (loss.calls, loss.training) == (1, True) and loss.centre is buffer
    assert loss.weight.grad is grad and grad is not None


TARGETS = {
    "classes": lambda y: y,
    "of 32 bits": lambda y: y.int(),
    "probabilities": lambda y: (F.one_hot(y, CLASSES).double() + 0.1).softmax(dim=-1),
}


@pytest.mark.parametrize("targets", TARGETS)
def test_the_default_cross_entropy_takes_what_any_loss_function_takes(network, targets):
    x, labels = batch()
    y = TARGETS[targets](labels)
    report = diagnose(network, [(x, y)], None, description=BLOCKS, loss_fn=nn.CrossEntropyLoss())
    target = y if targets == "probabilities" else labels
    assert report.bp_grad_norms == pytest.approx(
        bp_grad_norms(
            network, x, target, lambda *given: F.cross_entropy(*given), description=BLOCKS
        )
    )
    # It is known as cross-entropy.
    assert (report.notes == "") == (targets != "probabilities")


@pytest.mark.parametrize("share", [0.45, 0.7])
@pytest.mark.parametrize("mean_of", ["those that count", "all"])
def test_medians_are_over_the_samples_that_the_loss_counts(network, share, mean_of):
    x, labels = batch()
    left = torch.randperm(100, generator=torch.Generator().manual_seed(1)) >= 100 * share
    given = labels.where(left, torch.tensor(-100))
    count = int(left.sum()) if mean_of == "all" else 1

    def over_all(logits, labels):
        return F.cross_entropy(logits, labels, reduction="sum") / len(labels)

    loss = over_all if mean_of == "all" else nn.CrossEntropyLoss()
    report = diagnose(network, [(x, given)], None, description=BLOCKS, loss_fn=loss)
    rest = diagnose(network, [(x[left], labels[left])], None, description=BLOCKS)
    scale = count / 100 if mean_of == "all" else 1
    expected = [scale * norm for norm in rest.bp_grad_norms]
    assert report.bp_grad_norms == pytest.approx(expected, rel=1e-6) and min(expected) > 0
    assert bp_grad_norms(network, x, given, loss, description=BLOCKS) == pytest.approx(
        expected, rel=1e-6
    )
    assert report.samples == int(left.sum()) and report.checks["reference"].fires is False
    assert report.checks["reference"].interval == pytest.approx(
        [scale * end for end in rest.checks["reference"].interval], rel=1e-6
    )
