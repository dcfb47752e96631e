"""Equilibrium propagation against backpropagation and against a relaxation written out by hand, in
float64.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from networks import block_by_hand, by_hand, head_by_hand
from torch import nn

from fa_audit.methods.ep import EP
from fa_audit.networks.trace import trace
from fa_audit.training.learner import build, learn

SHAPE, CLASSES, WIDTH, DEPTH = (1, 4, 4), 3, 8, 2
NETWORKS = [(True, True), (False, False)]  # with skips and terminal norm, without either


@pytest.fixture
def make_learner(make_spec):
    """Learners whose blocks do something and whose energy is curved so evenly that relaxation
    settles.
    """

    def make(method, residual=True, terminal_norm=True, **options):
        spec = make_spec(
            "ep",
            width=WIDTH,
            depth=DEPTH,
            residual=residual,
            terminal_norm=terminal_norm,
            seed=3,
            **options,
        )
        learner, randomness = build(spec, SHAPE, CLASSES, method), torch.Generator().manual_seed(3)
        network = learner.network.double()
        with torch.no_grad():
            network.embed[1].weight.mul_(3)
            for block in network.blocks:
                nn.init.normal_(
                    block.outer.weight, std=0.3 if residual else 0.5, generator=randomness
                )
                nn.init.normal_(block.outer.bias, generator=randomness)
        return learner

    return make


def following(network, layer, h):
    return block_by_hand("resmlp", network, layer, h, training=True)[1]


def losses(network, top, labels):
    return F.cross_entropy(head_by_hand("resmlp", network, top), labels, reduction="none")


def free_states(network, x):
    return [h.detach() for h in by_hand("resmlp", network, x, training=True)[1]]


def errors_of(network, free, states):
    """``h_0 - embed(x)`` and ``h_{l+1} - prediction(h_l)``."""
    return [
        states[0] - free[0],
        *(b - following(network, layer, a) for layer, (a, b) in enumerate(pairwise(states))),
    ]


def pulled_back(network, layer, h, vector):
    """``J_l^T vector``, row by row."""
    return torch.autograd.functional.vjp(lambda state: following(network, layer, state), h, vector)[
        1
    ]


def loss_slope(network, top, labels):
    return torch.autograd.functional.jacobian(lambda h: losses(network, h, labels).sum(), top)


def relaxed(network, free, labels, beta, method):
    """The nudged phase with every slope written out: ``e_l - J_l^T e_{l+1}``, at the top ``e_L +
    beta dCE/dh_L``.
    """
    states = list(free)
    for _ in range(method.steps):
        e = [error.detach() for error in errors_of(network, free, states)]
        slopes = [
            e[layer] - pulled_back(network, layer, states[layer], e[layer + 1])
            for layer in range(DEPTH)
        ]
        slopes.append(e[-1] + beta * loss_slope(network, states[-1], labels))
        states = [h - method.alpha * slope for h, slope in zip(states, slopes, strict=True)]
    return states


def taught_parameters(network):
    return {name: p for name, p in network.named_parameters() if not name.startswith("head.")}


def hand_update(network, x, labels, method, betas):
    """``mean over the phases of d(E_nudged - E_free)/dtheta / beta``, per sample, from the errors
    of each layer.
    """
    free, total = free_states(network, x), 0.0
    for beta in betas:
        nudged = relaxed(network, free, labels, beta, method)
        e = [error.detach() for error in errors_of(network, free, nudged)]
        total = total - (e[0] * network.embed(x)).sum() / beta
        for layer in range(DEPTH):
            total = total - (e[layer + 1] * following(network, layer, nudged[layer])).sum() / beta
    return torch.autograd.grad(
        total / len(betas) / len(labels), list(taught_parameters(network).values())
    )


def relative_error(learner, x, labels):
    """``||EP update - BP gradient|| / ||BP gradient||`` over all parameters of embedding and
    blocks.
    """
    parameters = list(taught_parameters(learner.network).values())
    logits, _ = by_hand("resmlp", learner.network, x, training=True)
    truth = torch.autograd.grad(F.cross_entropy(logits, labels), parameters)
    learn(learner, x, labels, torch.Generator())
    missed = sum((p.grad - g).square().sum() for p, g in zip(parameters, truth, strict=True))
    return (missed / sum(g.square().sum() for g in truth)).sqrt().item()


@pytest.mark.parametrize(("symmetric", "order", "largest"), [(False, 1, 2e-2), (True, 2, 3e-5)])
@pytest.mark.parametrize(("residual", "terminal_norm"), NETWORKS)
def test_the_error_of_the_update_vanishes_with_beta(
    make_learner, batch, residual, terminal_norm, symmetric, order, largest
):
    settled = EP(steps=500, alpha=0.35, symmetric=symmetric)
    methods = [replace(settled, beta=beta) for beta in (1e-1, 1e-2)]
    errors = [
        relative_error(make_learner(method, residual, terminal_norm), *batch) for method in methods
    ]
    assert errors[0] / errors[1] == pytest.approx(10**order, rel=0.1) and errors[1] < largest


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("residual", "terminal_norm"), NETWORKS)
def test_credits_and_update_are_those_of_the_written_out_relaxation(
    make_learner, batch, residual, terminal_norm, symmetric
):
    x, labels = batch
    method = EP(beta=0.6, steps=5, alpha=0.25, symmetric=symmetric)
    learner = make_learner(method, residual, terminal_norm)
    free = free_states(learner.network, x)
    up = relaxed(learner.network, free, labels, 0.6, method)
    down = relaxed(learner.network, free, labels, -0.6, method)
    expected = [
        -(a - b) / 1.2 if symmetric else -(a - h) / 0.6
        for a, b, h in zip(up, down, free, strict=True)
    ]
    credits = method.credits(
        learner.network, trace(learner.network, x, local=True), labels, learner.state
    )
    torch.testing.assert_close(
        [credits.embedding, *credits.blocks], expected, rtol=1e-9, atol=1e-13
    )
    assert not credits.normalise
    update = hand_update(learner.network, x, labels, method, (0.6, -0.6) if symmetric else (0.6,))
    learn(learner, x, labels, torch.Generator())
    for (name, p), gradient in zip(taught_parameters(learner.network).items(), update, strict=True):
        assert torch.allclose(p.grad, gradient, rtol=1e-9, atol=1e-13), name
