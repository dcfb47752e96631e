"""Forward gradients against the gradients that they estimate, and against three steps written out
in plain torch.
"""

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from learners import credits_of, learner_of, listed_credits
from networks import batch_of, block_by_hand, embed_by_hand, head_by_hand, vector
from torch.distributions import Normal

from fa_audit.methods.forward_gradient import perturbations
from fa_audit.methods.local_losses import LocalPred
from fa_audit.training.learner import learn

ARCHITECTURES = ("resmlp", "vit_mini", "small_resnet", "bn_cnn")
DEPTH = 2
BATCH = batch_of(count=6)


def redrawn(learner, count):
    """What a learner's credits and perturbations are after each of some draws."""
    randomness = torch.Generator().manual_seed(7)
    for _ in range(count):
        learner.method.update_state(learner.network, learner.state, randomness)
        yield listed_credits(learner, *BATCH), perturbations(BATCH[0], learner.state)


@pytest.mark.parametrize("name", ["resmlp", "vit_mini"])
def test_credits_are_gradients_of_the_local_losses_on_average_but_as_long_as_a_normal_direction_makes_them(
    name,
):
    learner, draws = learner_of("forward_gradient", name, depth=DEPTH), 1000
    local = credits_of(replace(learner, method=LocalPred()), *BATCH)
    exact, objective = local.by_name().values(), credits_of(learner, *BATCH).objective
    assert objective.item() == pytest.approx(local.objective.item(), rel=1e-12)
    drawn = [
        torch.stack(state)
        for state in zip(*(credits for credits, _ in redrawn(learner, draws)), strict=True)
    ]
    longer = []
    for found, g in zip(drawn, exact, strict=True):
        size = g.square().sum(dim=1, keepdim=True)
        away = (found.mean(dim=0) - g) / ((size + g.square()) / draws).sqrt()  # in standard errors
        assert away.abs().max() < 4.5 and away.square().mean().item() == pytest.approx(1, abs=0.6)
        longer.append(found.square().sum(dim=2) / size[:, 0])
    assert torch.cat(longer).mean().item() == pytest.approx(g.shape[1] + 2, rel=0.05)


def test_perturbations_are_independent_standard_normal_numbers():
    learner, draws = learner_of("forward_gradient", depth=DEPTH), 1000
    n = torch.stack(
        [torch.cat(perturbed, dim=1) for _, perturbed in redrawn(learner, draws)]
    )  # (draws, B, all d)
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        spread = math.sqrt((math.prod(range(1, 2 * power, 2)) - moment**2) / draws)
        assert ((n**power).mean(dim=0) - moment).abs().max() < 5 * spread
    flat = n.flatten(1)
    for values in (
        flat,
        flat.square() - 1,
    ):  # of samples, features and states: no two go together, in size neither
        correlations = torch.corrcoef(values.T) - torch.eye(flat.shape[1])
        assert correlations.abs().max() < 6 / math.sqrt(draws)


def normal_by_hand(x, projections, turns):
    """Angles of the codes, folded to half a turn: uniform in (0, 1), and the normal number at that
    probability.
    """
    angles = 2 * math.pi * (x.flatten(1) @ projections @ turns[:-1] + turns[-1])
    return Normal(0.0, 1.0).icdf(torch.acos(torch.cos(angles)) / math.pi)


def step_by_hand(name, network, nets, drawn, x, labels):
    """Gradients of the network's parameters along directions, from derivatives along them, and of
    the nets'.
    """
    states = [embed_by_hand(name, network, x, training=False)]
    for layer in range(DEPTH):
        states.append(block_by_hand(name, network, layer, states[-1].detach(), training=False)[1])
    total = F.cross_entropy(head_by_hand(name, network, states[-1].detach()), labels)
    for h, (weight, bias), (projections, turns) in zip(states, nets, drawn, strict=True):
        n, v = normal_by_hand(x, projections, turns), vector(h)

        def losses(v, weight=weight, bias=bias):
            return F.cross_entropy(v @ weight.T + bias, labels, reduction="none")

        slopes = torch.autograd.functional.jvp(losses, v.detach(), n)[1]
        total = total + (v * slopes[:, None] * n).sum(dim=1).mean() + losses(v.detach()).mean()
    parameters = [*network.parameters(), *(p for pair in nets for p in pair)]
    for p, g in zip(
        parameters, torch.autograd.grad(total, parameters, allow_unused=True), strict=True
    ):
        p.grad = g


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_three_steps_are_those_of_plain_torch(name):
    learner = learner_of("forward_gradient", name, depth=DEPTH, lr=0.01, weight_decay=0.0)
    network, state = copy.deepcopy(learner.network), copy.deepcopy(learner.state)
    nets = [tuple(each["pred"].parameters()) for each in state]
    optimiser = torch.optim.AdamW(
        [*network.parameters(), *(p for pair in nets for p in pair)], lr=0.01, weight_decay=0
    )
    theirs, randomness, by_hand = (
        learner.optimiser(),
        *(torch.Generator().manual_seed(5) for _ in range(2)),
    )
    turns = [each.turns for each in state]
    for step in range(3):
        x, labels = batch_of(count=6, seed=60 + step)
        step_by_hand(name, network, nets, [(state.projections, t) for t in turns], x, labels)
        optimiser.step()
        theirs.zero_grad()
        learn(learner, x, labels, randomness)
        theirs.step()
        turns = [(10 * torch.randn(t.shape, generator=by_hand)).double() for t in turns]
    found, expected = [*learner.network.parameters()], [*network.parameters()]
    found += [p for each in learner.state for p in each["pred"].parameters()]
    expected += [p for pair in nets for p in pair]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-7, atol=1e-8)
