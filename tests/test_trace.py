"""Reference gradients against a hand-written forward pass; audits leave no trace on a model."""

import contextlib
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from networks import snapshot
from torch import nn

from fa_audit.networks.resmlp import ResMLP
from fa_audit.networks.trace import reference, trace, untouched

OPTIONS = [(residual, norm) for residual in (True, False) for norm in (True, False)]


def resmlp(residual=True, terminal_norm=True):
    with torch.random.fork_rng():
        torch.manual_seed(11)
        return ResMLP(
            image_shape=(1, 3, 3), classes=4, width=6, depth=3, terminal_norm=terminal_norm, residual=residual
        ).double()


def samples(count=5):
    randomness = torch.Generator().manual_seed(12)
    x = torch.randn(count, 1, 3, 3, dtype=torch.float64, generator=randomness)
    return x, torch.randint(4, (count,), generator=randomness)


def by_hand(network, x, residual, terminal_norm):
    """Logits and states of a ResMLP from its formula."""
    states = [F.linear(x.flatten(1), network.embed[1].weight, network.embed[1].bias)]
    for block in network.blocks:
        h = F.layer_norm(states[-1], (6,), block.norm.weight, block.norm.bias)
        f = F.linear(F.gelu(F.linear(h, block.inner.weight, block.inner.bias)), block.outer.weight, block.outer.bias)
        states.append(states[-1] + f if residual else f)
    top = states[-1]
    if terminal_norm:
        top = F.layer_norm(top, (6,), network.head.norm.weight, network.head.norm.bias)
    return F.linear(top, network.head.linear.weight, network.head.linear.bias), states


@pytest.mark.parametrize(("residual", "terminal_norm"), OPTIONS)
def test_reference_equals_autograd_of_the_formula(residual, terminal_norm):
    network, (x, labels) = resmlp(residual, terminal_norm), samples()
    logits, states = by_hand(network, x, residual, terminal_norm)
    gradients = torch.autograd.grad(F.cross_entropy(logits, labels), states)
    found = reference(network, x, labels)
    torch.testing.assert_close(found.gradients, gradients, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.states, tuple(states), rtol=0, atol=1e-10)
    torch.testing.assert_close(found.logits, logits, rtol=0, atol=1e-10)
    assert not any(t.requires_grad for t in (*found.states, *found.gradients, found.logits))
    for local in (True, False):  # what a local trace cuts: test_architectures.py
        run = trace(network, x, local=local)
        torch.testing.assert_close((run.logits, *run.states), (logits, *states))
        torch.testing.assert_close(run.residuals, tuple(b - residual * a for a, b in pairwise(states)))


def test_reference_leaves_gradients_alone_and_needs_none():
    network, (x, labels) = resmlp(), samples()
    expected = reference(network, x, labels)
    assert all(p.grad is None for p in network.parameters())
    for p in network.parameters():
        p.grad = torch.full_like(p, 3.0)
    network.requires_grad_(False)
    with torch.no_grad():
        found = reference(network, x, labels)
        assert not torch.is_grad_enabled()
    torch.testing.assert_close(found.gradients, expected.gradients, rtol=0, atol=0)
    assert all((p.grad == 3.0).all() for p in network.parameters())


# --- untouched -----------------------------------------------------------------------------------------------------


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
