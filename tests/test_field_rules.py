"""Rules of the field against closed forms in float64: mirrors, targets, relaxed errors, local
losses, stages.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from learners import learner_of, listed_credits
from networks import CLASSES, batch_of, rough_learner
from torch import nn

from fa_audit.methods.dtp import DTP
from fa_audit.methods.local_losses import LocalPredSim, LocalSim
from fa_audit.methods.predictive_coding import PredictiveCoding
from fa_audit.methods.transport import block_weights
from fa_audit.methods.weight_mirror import WeightMirror
from fa_audit.networks.trace import trace
from fa_audit.training.learner import learn

DEPTH = 3
BATCH = batch_of()


def states_of(network, x):
    states = [network.embed(x)]
    for layer in range(DEPTH):
        states.append(network.split(layer, states[-1])[1])
    return states


def gradients_of(network, x, labels):
    """Of the per-sample loss by the vectors of all states, by autograd through the whole network."""
    states = states_of(network, x)
    slopes = torch.autograd.grad(
        F.cross_entropy(network.head(states[-1]), labels, reduction="sum"), states
    )
    return [network.read_gradient(slope) for slope in slopes]


def mirrored(learner, steps):
    """Every weight of the blocks, its partner before and after steps of the mirror alone."""
    randomness, pairs = torch.Generator().manual_seed(2), list(block_weights(learner.network))
    before = [learner.state.get_buffer(name).clone() for name, _ in pairs]
    for _ in range(steps):
        learner.method.update_state(learner.network, learner.state, randomness)
    return [
        (w.detach(), old, learner.state.get_buffer(name))
        for (name, w), old in zip(pairs, before, strict=True)
    ]


@pytest.mark.parametrize("architecture", ["resmlp", "small_resnet"])
def test_mirrored_weights_close_in_on_the_fixed_point_where_the_noise_is_averaged_out(
    monkeypatch, architecture
):
    learner = learner_of("weight_mirror", architecture)
    method = WeightMirror(eta=0.06, decay=0.03, sigma=1.5, draws=100)

    def white(
        shape, randn=torch.randn, **given
    ):  # its second moments are those of the distribution
        return torch.linalg.qr(randn(shape, dtype=torch.float64, **given))[0] * shape[0] ** 0.5

    with monkeypatch.context() as patch:
        patch.setattr(torch, "randn", white)
        found = mirrored(replace(learner, method=method), steps=40)
    for w, old, b in found:
        limit = 0.06 / 0.03 * 1.5**2 * w
        torch.testing.assert_close(
            b - limit, (1 - 0.03) ** 40 * (old - limit), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("eta", [0.01, 2.0])
def test_exact_inverses_of_linear_blocks_carry_targets_along_the_gauss_newton_direction(eta):
    learner = learner_of("dtp", residual=False)
    weights = [
        torch.eye(8) + 0.2 * torch.randn(8, 8, generator=torch.Generator().manual_seed(s))
        for s in range(DEPTH)
    ]
    learner.network.blocks = nn.ModuleList(linear(w.double()) for w in weights)
    inverses = nn.ModuleList(linear(w.double().inverse()) for w in weights)
    found = listed_credits(replace(learner, method=DTP(eta=eta), state=inverses), *BATCH)
    expected = [gradients_of(learner.network, *BATCH)[-1]]
    for w in reversed(weights):
        expected.insert(0, torch.linalg.solve(w.double(), expected[0].T).T)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def linear(weight):
    layer = nn.Linear(*weight.shape, bias=False, dtype=torch.float64)
    layer.weight.data = weight
    return layer


@pytest.mark.parametrize(
    ("architecture", "options"), [("resmlp", {}), ("resmlp", {"residual": False}), ("bn_cnn", {})]
)
def test_credits_of_target_propagation_are_distances_to_the_written_out_targets(
    architecture, options
):
    learner = learner_of("dtp", architecture, **options)
    network, skip = learner.network, learner.network.skip != "none"
    h = [network.read(state).detach() for state in states_of(network, BATCH[0])]
    targets = [h[-1] - 0.33 * gradients_of(network, *BATCH)[-1]]
    for layer in reversed(range(DEPTH)):
        at_target, at_state = (
            learner.state[layer](v).detach() + skip * v for v in (targets[0], h[layer + 1])
        )
        targets.insert(0, h[layer] + at_target - at_state)
    expected = [(state - target) / 0.33 for state, target in zip(h, targets, strict=True)]
    torch.testing.assert_close(listed_credits(learner, *BATCH), expected, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("residual", [True, False])
def test_inverses_learn_to_reconstruct_noisy_states(residual):
    learner = learner_of("dtp", residual=residual)
    network, run = learner.network, trace(learner.network, BATCH[0], local=True)
    loss = learner.method.auxiliary_loss(
        network, run, BATCH[1], learner.state, torch.Generator().manual_seed(9)
    )
    randomness, expected = torch.Generator().manual_seed(9), 0.0
    for layer, h in enumerate(states_of(network, BATCH[0])[:-1]):
        size = h.square().mean(dim=1, keepdim=True).sqrt()
        noisy = h + 0.36 * size * torch.randn(h.shape, generator=randomness)
        above = network.split(layer, noisy)[1]
        expected += F.mse_loss(learner.state[layer](above) + residual * above, noisy)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize(
    "architecture", ["resmlp", "vit_mini", "small_resnet", "bn_cnn", "student_mlp"]
)
def test_errors_relax_to_the_gradient_where_predictions_are_fixed(architecture):
    learner = learner_of("predictive_coding", architecture)
    for method in (PredictiveCoding(DEPTH + 1, 1.0, True), PredictiveCoding(200, 0.2, True)):
        for found, g in zip(
            listed_credits(replace(learner, method=method), *BATCH),
            gradients_of(learner.network, *BATCH),
        ):
            assert (found - g).norm() < 1e-6 * g.norm()


@pytest.mark.parametrize("residual", [True, False])
def test_relaxed_errors_and_their_update_are_those_of_the_written_out_energy(residual):
    learner = learner_of("predictive_coding", constants=PredictiveCoding(7, 0.1), residual=residual)
    network, (x, labels) = learner.network, BATCH

    def errors(states, embedded):
        predicted = [embedded, *(network.split(layer, h)[1] for layer, h in enumerate(states[:-1]))]
        return [h - p for h, p in zip(states, predicted, strict=True)]

    states = [h.detach() for h in states_of(network, x)]
    embedded = states[0]
    for _ in range(7):
        states = [h.detach().requires_grad_() for h in states]
        total = sum(e.square().sum() for e in errors(states, embedded)) / 2
        total = total + F.cross_entropy(network.head(states[-1]), labels, reduction="sum")
        slopes = torch.autograd.grad(total, states)
        states = [(h - 0.1 * slope).detach() for h, slope in zip(states, slopes, strict=True)]
    expected = [-e.detach() for e in errors(states, embedded)]
    torch.testing.assert_close(listed_credits(learner, *BATCH), expected, rtol=1e-9, atol=1e-13)
    taught = [p for name, p in network.named_parameters() if not name.startswith("head.")]
    outputs = [
        network.embed(x),
        *(network.split(layer, h)[1] for layer, h in enumerate(states[:-1])),
    ]
    local = sum((a * out).sum() for a, out in zip(expected, outputs, strict=True)) / len(labels)
    learn(learner, x, labels, torch.Generator())
    torch.testing.assert_close(
        [p.grad for p in taught], [*torch.autograd.grad(local, taught)], rtol=1e-8, atol=1e-12
    )


def test_a_block_learns_as_a_network_of_one_block_and_its_classifier():
    learner = learner_of("local_pred")
    states = [h.detach() for h in states_of(learner.network, BATCH[0])]
    learn(learner, *BATCH, torch.Generator())
    for layer, block in enumerate(learner.network.blocks):
        classifier, own = learner.state[layer + 1]["pred"], [*block.parameters()]
        loss = F.cross_entropy(classifier(learner.network.split(layer, states[layer])[1]), BATCH[1])
        expected = torch.autograd.grad(loss, [*own, *classifier.parameters()])
        for p, gradient in zip([*own, *classifier.parameters()], expected, strict=True):
            torch.testing.assert_close(p.grad, gradient, rtol=1e-9, atol=1e-13)
    loss = F.cross_entropy(learner.state[0]["pred"](learner.network.embed(BATCH[0])), BATCH[1])
    parameters = [*learner.network.embed.parameters()]
    torch.testing.assert_close(
        [p.grad for p in parameters], [*torch.autograd.grad(loss, parameters)]
    )


@pytest.mark.parametrize(
    ("method", "share"), [(LocalSim(), 1.0), (LocalPredSim(), 0.99), (LocalPredSim(0.3), 0.3)]
)
def test_similarity_losses_match_correlations_of_features_and_of_labels(method, share):
    learner = learner_of("local_predsim")
    found = listed_credits(replace(learner, method=method), *BATCH)
    wanted = torch.corrcoef(F.one_hot(BATCH[1], CLASSES).double())
    for state, nets, credit in zip(
        states_of(learner.network, BATCH[0]), learner.state, found, strict=True
    ):
        v = state.detach().requires_grad_()
        sim = (torch.corrcoef(v @ nets["sim"].weight.T) - wanted).square().sum() / len(v)
        pred = F.cross_entropy(
            v @ nets["pred"].weight.T + nets["pred"].bias, BATCH[1], reduction="sum"
        )
        (slope,) = torch.autograd.grad(share * sim + (1 - share) * pred, v)
        torch.testing.assert_close(credit, slope, rtol=1e-8, atol=1e-12)


def parts_of(learner):
    """Embedding and blocks with their nets."""
    return list(zip([learner.network.embed, *learner.network.blocks], learner.state, strict=True))


@pytest.mark.parametrize(
    ("progress", "active"), [(0.0, {0, 1}), (0.32, {0, 1}), (1 / 3, {2}), (0.6, {2}), (0.9, {3})]
)
def test_only_the_stage_s_block_moves_though_momentum_and_decay_would_move_others(progress, active):
    learner = learner_of("layerwise", weight_decay=0.5, lr=0.01)
    optimiser = learner.optimiser()
    for at in (0.0, 0.34, 0.67, progress):
        before = [
            [p.clone() for p in (*part.parameters(), *nets.parameters())]
            for part, nets in parts_of(learner)
        ]
        learner.method.begin_epoch(learner.state, at)
        optimiser.zero_grad()
        learn(learner, *BATCH, torch.Generator())
        optimiser.step()
    for index, ((part, nets), old) in enumerate(zip(parts_of(learner), before, strict=True)):
        same = [
            torch.equal(p, q)
            for p, q in zip((*part.parameters(), *nets.parameters()), old, strict=True)
        ]
        assert same == [index not in active] * len(same), index
    assert all(p.grad is not None for p in learner.network.head.parameters())


def test_a_stage_begins_where_its_share_of_the_epochs_is_done_to_the_last_digit():
    learner = rough_learner("resmlp", "layerwise", depth=100)
    learner.method.begin_epoch(learner.state, 29 / 100)  # 100 times which is less than 29
    assert learner.state.stage == 29
