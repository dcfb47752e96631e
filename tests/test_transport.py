"""Feedback that would carry nothing is refused: exact backpropagation must not pass for a bio-plausible method."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fa_audit.core.errors import AuditError
from fa_audit.networks.network import Network
from fa_audit.networks.trace import trace
from fa_audit.training.learner import load_method
from fa_audit.training.loop import train

TRANSPORTED = ("usf", "brsf", "frsf", "kolen_pollack")
SMALL = (("depth", 2), ("width", 8))


class Product(nn.Module):
    """A block that multiplies by its weight without a linear layer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(6) / 2)

    def forward(self, h):
        return h @ self.weight.T


class Attention(nn.Module):
    """A block whose projections are packed inside torch's attention."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, h):
        return self.attention(h[:, None], h[:, None], h[:, None], need_weights=False)[0][:, 0]


class Chain(Network):
    """A linear embedding, one block, a linear head."""

    def __init__(self, block):
        super().__init__()
        self.width, self.classes = 6, 3
        self.embed = nn.Linear(4, 6)
        self.blocks = nn.ModuleList([block])
        self.head = nn.Linear(6, 3)


def credits(name, block):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network, x = Chain(block()), torch.randn(5, 4)
    method = load_method(name)
    state = method.init_state(network, torch.Generator().manual_seed(0))
    return method.credits(network, trace(network, x, local=True), torch.arange(5) % 3, state)


@pytest.mark.parametrize("method", TRANSPORTED)
@pytest.mark.parametrize(("block", "weight"), [(Product, "weight"), (Attention, "attention.in_proj_weight")])
def test_a_weight_whose_feedback_is_never_used_is_an_error(method, block, weight):
    with pytest.raises(AuditError, match=rf"{block.__name__}: no linear layer or convolution passes {weight}"):
        credits(method, block)
    assert credits(method, lambda: nn.Linear(6, 6)).embedding.isfinite().all()


@pytest.mark.parametrize("architecture", ("resmlp", "bn_cnn"))
def test_without_blocks_there_is_nothing_to_transport_and_every_method_is_fa(make_spec, dataset, architecture):
    spec = replace(make_spec("fa", shallow=True), architecture=architecture, architecture_options=SMALL)
    trained = [train(replace(spec, method=method), dataset).learner.network for method in ("fa", *TRANSPORTED)]
    expected, *others = [network.state_dict() for network in trained]
    for other in others:
        assert other.keys() == expected.keys()
        assert all(torch.equal(value, expected[name]) for name, value in other.items())
