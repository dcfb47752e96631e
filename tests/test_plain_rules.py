"""Credits and three steps of training of every rule that `plain_rules` has, in float64."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from networks import CLASSES, batch_of, head_by_hand, learner_of, listed_credits, take_steps
from plain_rules import (
    both,
    chain,
    credit_bridge,
    difference_reconstruction,
    direct_kolen_pollack,
    dual_propagation,
    forward_forward,
    forward_gradient,
    goodness,
    local,
    nudged,
    pepita,
    prediction,
    signal_propagation,
    similarity,
    state_bridge,
    target_propagation,
)

from fa_audit.methods.credit_bridge import CreditBridge
from fa_audit.methods.dtp import DTP
from fa_audit.methods.dtp_drl import DTPDRL
from fa_audit.methods.dual_propagation import DualPropagation
from fa_audit.methods.ep import EP
from fa_audit.methods.local_losses import LocalPredSim
from fa_audit.methods.predictive_coding import PredictiveCoding
from fa_audit.methods.state_bridge import StateBridge


def redrawn_labels(state, randomness):
    state.r.normal_(std=CLASSES, generator=randomness)


def redrawn_directions(state, randomness):
    for nets in state:
        nets.turns.copy_(10 * torch.randn(nets.turns.shape, generator=randomness))


def averaged(state, randomness):
    for average, present in zip(state.average.parameters(), state.value.parameters(), strict=True):
        average.mul_(0.9).add_(0.1 * present.detach())


# By a rule's name: its constants (None: the defaults), and the rule in plain torch.
RULES = {
    "local_pred": (None, local(prediction)),
    "local_sim": (None, local(similarity)),
    "local_predsim": (LocalPredSim(0.3), local(both)),
    "mono_forward": (None, local(goodness)),
    "sigprop": (None, signal_propagation),
    "forward_gradient": (None, forward_gradient),
    "direct_kolen_pollack": (None, direct_kolen_pollack),
    "pepita": (None, pepita),
    "forward_forward": (None, forward_forward),
    "dtp": (DTP(eta=0.5, inverse_rate=3.0), target_propagation),
    "dtp_drl": (DTPDRL(0.5, 0.4, inverse_rate=3.0, damping=0.1), difference_reconstruction),
    "predictive_coding": (PredictiveCoding(5, 0.1), nudged([1.0], True)),
    "ep": (EP(0.6, 5, 0.15), nudged([0.6], False)),
    "ep_symmetric": (EP(0.6, 5, 0.15, True), nudged([0.6, -0.6], False)),
    "state_bridge": (StateBridge(16), state_bridge),
    "credit_bridge": (CreditBridge(0.3, 4, 0.2, 0.9, hidden=16), credit_bridge),
    "dual_propagation": (DualPropagation(2.0, 0.1, 3), dual_propagation),
}
# What a step changes besides parameters, before the optimiser's step.
UPDATES = {
    "forward_forward": redrawn_labels,
    "forward_gradient": redrawn_directions,
    "credit_bridge": averaged,
}
STATE_RATES = {"dtp": 3.0, "dtp_drl": 3.0}
DECAYING = {"direct_kolen_pollack"}


ARCHITECTURES = ("resmlp", "mlp", "vit_mini", "small_resnet", "bn_cnn")
CASES = [(name, architecture) for name in RULES for architecture in ARCHITECTURES]
# Bridges read all states alike, which bn_cnn's last one is not.
CASES = [case for case in CASES if not (case[0].endswith("_bridge") and case[1] == "bn_cnn")]


# AdamW hides the scale of gradients; SGD shows it. The second value: how far most parameters move.
OPTIMISERS = {
    "adamw": (torch.optim.AdamW, 1e-3),
    "sgd": (partial(torch.optim.SGD, momentum=0.9), 1e-5),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize(("name", "architecture"), CASES)
def test_credits_and_three_steps_are_those_of_plain_torch(name, architecture, optimiser):
    constants, rule = RULES[name]
    options = {"depth": 2, "lr": 0.01, "weight_decay": 0.1, "optimiser": optimiser}
    learner = learner_of(name, architecture, constants=constants, **options)
    learner.method.begin_epoch(learner.state, 0.5)
    plain, randomness = copy.deepcopy(learner), torch.Generator().manual_seed(5)
    network, state = plain.network, plain.state
    of_state = {"lr": 0.01 * STATE_RATES.get(name, 1.0)}
    of_state["weight_decay"] = 0.1 if name in DECAYING else 0.0
    learnt = [p for p in state.parameters() if p.requires_grad]
    parameters = [*network.parameters(), *learnt]
    before = [p.detach().clone() for p in parameters]
    groups = [{"params": [*network.parameters()], "lr": 0.01, "weight_decay": 0.1}]
    if learnt:
        groups.append({"params": learnt} | of_state)
    make, least = OPTIMISERS[optimiser]
    steps, batches = make(groups), [batch_of(seed=60 + step) for step in range(3)]
    for x, labels in batches:
        credits, loss = rule(architecture, plain, x, labels, randomness)
        torch.testing.assert_close(listed_credits(plain, x, labels), credits, rtol=1e-7, atol=1e-9)
        top = chain(architecture, network, x)[0][-1].detach()
        loss = loss + F.cross_entropy(head_by_hand(architecture, network, top), labels)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = g
        if name in UPDATES:
            UPDATES[name](state, randomness)
        steps.step()
    take_steps(learner, batches, torch.Generator().manual_seed(5))
    found = [*learner.network.parameters()]
    found += [p for p in learner.state.parameters() if p.requires_grad]
    torch.testing.assert_close(found, parameters, rtol=1e-6, atol=1e-7)
    moved = [(p - old).abs().max() > least for p, old in zip(found, before, strict=True)]
    assert sum(moved) > 0.8 * len(moved)
