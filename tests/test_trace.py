"""Reference gradients and audits leave no trace on a model; what they are is tested in test_architectures.py."""

import contextlib

import pytest
import torch
from networks import batch_of, rough_learner, snapshot
from torch import nn

from fa_audit.networks.trace import reference, untouched


def test_reference_leaves_gradients_alone_and_needs_none():
    network, (x, labels) = rough_learner("resmlp").network, batch_of()
    expected = reference(network, x, labels)
    assert all(p.grad is None for p in network.parameters())
    assert not any(t.requires_grad for t in (*expected.states, *expected.gradients, expected.logits))
    for p in network.parameters():
        p.grad = torch.full_like(p, 3.0)
    network.requires_grad_(False)
    with torch.no_grad():
        found = reference(network, x, labels)
        assert not torch.is_grad_enabled()
    torch.testing.assert_close(found.gradients, expected.gradients, rtol=0, atol=0)
    assert all((p.grad == 3.0).all() for p in network.parameters())


class Unruly(nn.Module):
    """Changes buffers in every mode and draws random numbers in its forward pass."""

    def __init__(self):
        super().__init__()
        self.norm, self.dropout, self.linear = nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.linear(self.dropout(self.norm(x + torch.randn_like(x))))


@pytest.fixture
def unruly():
    with torch.random.fork_rng():
        torch.manual_seed(13)
        model = Unruly()
        model(torch.randn(6, 4)).sum().backward()
    model.train()
    model.norm.eval()
    return model


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("gradients", [True, False])
def test_untouched_restores_everything_even_after_an_exception(unruly, gradients, fails):
    before = snapshot(unruly)
    with contextlib.suppress(ZeroDivisionError), torch.set_grad_enabled(gradients), untouched(unruly):
        assert not any(module.training for module in unruly.modules())
        unruly(torch.randn(6, 4))
        unruly.train()
        unruly(torch.randn(6, 4))
        unruly.calls = unruly.calls + 5  # another tensor in its place
        assert unruly.norm.running_mean.tolist() != before[0]["norm.running_mean"]
        _ = 1 / (not fails)
    assert snapshot(unruly) == before


class Caching(nn.Module):
    """Fills a cache on first use, as rotary embeddings and masks do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", None, persistent=False)

    def forward(self, x):
        self.mask = torch.ones(len(x))
        return x * self.mask[:, None]


def test_untouched_copes_with_a_cache_that_is_filled_or_changes_its_size():
    model = Caching()
    with untouched(model):
        model(torch.ones(3, 2))
    assert model.mask is None
    model(torch.ones(2, 2))
    with untouched(model):
        model(torch.ones(3, 2))
    assert torch.equal(model.mask, torch.ones(2))
