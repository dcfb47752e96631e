"""Credits and three steps of training of every rule that `plain_rules` has, in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F
from learners import learner_of, listed_credits, take_steps
from networks import CLASSES, batch_of, head_by_hand
from plain_rules import (
    both,
    chain,
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
    target_propagation,
)

from fa_audit.methods.dtp import DTP
from fa_audit.methods.dtp_drl import DTPDRL
from fa_audit.methods.dual_propagation import DualPropagation
from fa_audit.methods.ep import EP
from fa_audit.methods.local_losses import LocalPredSim
from fa_audit.methods.predictive_coding import PredictiveCoding


def redrawn_labels(state, randomness):
    state.r.normal_(std=CLASSES, generator=randomness)


def redrawn_directions(state, randomness):
    for nets in state:
        nets.turns.copy_(10 * torch.randn(nets.turns.shape, generator=randomness))


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
    "dual_propagation": (DualPropagation(2.0, 0.1, 3), dual_propagation),
}
REDRAWN = {"forward_forward": redrawn_labels, "forward_gradient": redrawn_directions}
STATE_RATES = {"dtp": 3.0, "dtp_drl": 3.0}
DECAYING = {"direct_kolen_pollack"}


@pytest.mark.parametrize("architecture", ["resmlp", "vit_mini", "small_resnet", "bn_cnn"])
@pytest.mark.parametrize("name", RULES)
def test_credits_and_three_steps_are_those_of_plain_torch(name, architecture):
    constants, rule = RULES[name]
    options = {"depth": 2, "lr": 0.01, "weight_decay": 0.1}
    learner = learner_of(name, architecture, constants=constants, **options)
    plain, randomness = copy.deepcopy(learner), torch.Generator().manual_seed(5)
    network, state = plain.network, plain.state
    of_state = {"lr": 0.01 * STATE_RATES.get(name, 1.0)}
    of_state["weight_decay"] = 0.1 if name in DECAYING else 0.0
    parameters = [*network.parameters(), *state.parameters()]
    before = [p.detach().clone() for p in parameters]
    groups = [{"params": [*network.parameters()], "lr": 0.01, "weight_decay": 0.1}]
    if [*state.parameters()]:
        groups.append({"params": [*state.parameters()]} | of_state)
    optimiser, batches = torch.optim.AdamW(groups), [batch_of(seed=60 + step) for step in range(3)]
    for x, labels in batches:
        credits, loss = rule(architecture, plain, x, labels, randomness)
        found = listed_credits(plain, x, labels)
        torch.testing.assert_close(found, [a.detach() for a in credits], rtol=1e-7, atol=1e-9)
        top = chain(architecture, network, x)[0][-1].detach()
        loss = loss + F.cross_entropy(head_by_hand(architecture, network, top), labels)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = g
        optimiser.step()
        if name in REDRAWN:
            REDRAWN[name](state, randomness)
    take_steps(learner, batches, torch.Generator().manual_seed(5))
    found = [*learner.network.parameters(), *learner.state.parameters()]
    torch.testing.assert_close(
        [p.detach() for p in found], [p.detach() for p in parameters], rtol=1e-6, atol=1e-7
    )
    moved = [(p - old).abs().max() > 1e-3 for p, old in zip(found, before, strict=True)]
    assert sum(moved) > 0.8 * len(moved)
