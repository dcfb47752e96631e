"""Mono-Forward in float64: the closed form of its credits, and the authors' algorithm on their own
network.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from networks import CLASSES, assert_same, batch_of, rough_learner, spec_of, vector
from torch import nn

from fa_audit.methods.method import load_method
from fa_audit.networks.network import Network
from fa_audit.training.learner import Learner, learn

SHAPE, WIDTH, DEPTH, STEPS, LR = (1, 3, 4), 6, 2, 3, 0.03


class Chain(Network):
    """What the authors train: linear layers with ReLU, one after the other."""

    skip = "none"

    def __init__(self):
        super().__init__()
        self.width, self.classes, self.image_shape = WIDTH, CLASSES, SHAPE
        self.embed = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(SHAPE), WIDTH), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(DEPTH)
        )
        self.head = nn.Linear(WIDTH, CLASSES)


def chain_learner(name):
    """A learner of the network above in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        network = Chain()
        method = load_method(name)
        state = method.init_state(network, torch.Generator().manual_seed(5)).double()
    return Learner(
        spec_of("resmlp", name, lr=LR, weight_decay=0.0), SHAPE, network.double(), method, state
    )


def weights_of(learner):
    """Copies that learn of weights and biases: of the layers bottom to top, and of the head."""
    layers = [
        learner.network.embed[1],
        *(block[0] for block in learner.network.blocks),
        learner.network.head,
    ]
    return [
        [p.detach().clone().requires_grad_() for p in (layer.weight, layer.bias)]
        for layer in layers
    ]


def stepped(learner, batches):
    """The learner's parameters after one step of the public engine for every batch."""
    optimiser = learner.optimiser()
    for x, labels in batches:
        optimiser.zero_grad()
        learn(learner, x, labels, torch.Generator())
        optimiser.step()
    return weights_of(learner)


def flat(layers):
    return [p for layer in layers for p in layer]


def adam(parameters):
    return torch.optim.Adam(parameters, lr=LR)


def descend(optimiser, loss):
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def assert_near(found, expected, before):
    """The same to 1e-9, and moved."""
    for p, q, old in zip(found, expected, before, strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-9, atol=1e-11)
        assert (q - old).abs().max() > LR / 2


def test_three_steps_are_those_of_the_authors_algorithm_on_their_network():
    learner = chain_learner("mono_forward")
    before, matrices = weights_of(learner), [net.weight.detach().clone() for net in learner.state]
    (*layers, head), goodness = weights_of(learner), [m.clone().requires_grad_() for m in matrices]
    optimisers = [adam([*layer, m]) for layer, m in zip(layers, goodness, strict=True)]
    of_head, batches = adam(head), [batch_of(SHAPE, 7, seed) for seed in range(STEPS)]
    for x, labels in batches:
        a = x.reshape(len(x), -1)
        for (w, b), m, optimiser in zip(layers, goodness, optimisers, strict=True):
            a = (a.detach() @ w.T + b).clamp(
                min=0
            )  # what the next layer reads, from weights before the update
            g = a @ m.T
            descend(optimiser, (g.logsumexp(1) - g[torch.arange(len(x)), labels]).mean())
        descend(of_head, F.cross_entropy(a.detach() @ head[0].T + head[1], labels))
    found = stepped(learner, batches)
    assert_near(flat(found), flat([*layers, head]), flat(before))
    assert_near([net.weight for net in learner.state], goodness, matrices)


def states_and_credits(learner, batch):
    run = learner.trace(batch[0])
    found = learner.method.credits(learner.network, run, batch[1], learner.state)
    return run.states, [found.embedding, *found.blocks]


@pytest.mark.parametrize("architecture", ["resmlp", "vit_mini", "small_resnet", "bn_cnn"])
def test_credits_are_errors_of_the_goodness_through_what_is_active(architecture):
    learner, batch = rough_learner(architecture, "mono_forward"), batch_of()
    learner.network.eval()
    states, credits = states_and_credits(learner, batch)
    for h, net, a in zip(states, learner.state, credits, strict=True):
        v = vector(h).detach()
        p = (v.clamp(min=0) @ net.weight.T).softmax(1)
        assert net.bias is None and net.weight.shape == (CLASSES, v.shape[1])
        assert_same(a, ((p - F.one_hot(batch[1], CLASSES)) @ net.weight * (v > 0)).detach())
