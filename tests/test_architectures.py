"""Every architecture against its formula written out by hand, in float64: gradients, credits, local
learning.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from networks import (
    CLASSES,
    SHAPE,
    SHAPES,
    assert_same,
    assert_same_bits,
    batch_of,
    block_by_hand,
    by_hand,
    embed_by_hand,
    energy,
    gradient_vector,
    head_by_hand,
    local_loss,
    rough_learner,
    spec_of,
    vector,
)
from plain_rules import loss_slope, output_error

from fa_audit.audit.run_audit import audit
from fa_audit.core.errors import AuditError
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES
from fa_audit.networks.trace import reference
from fa_audit.training.checkpoint import learner_tensors
from fa_audit.training.learner import build, learn
from fa_audit.training.loop import block_credits, train

LOCAL = (
    "forward_gradient",
    "local_pred",
    "local_sim",
    "local_predsim",
    "layerwise",
    "mono_forward",
)
EXACT = ("bp", "ep", "ep_symmetric", "predictive_coding", "dual_propagation")
NOT_VECTORS = ("vit_mini", "small_resnet", "bn_cnn")
every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)
# Every method on one network and every network with two methods; the whole product in the matrix.
every_pair = pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(
            name,
            method,
            marks=[] if name == "resmlp" or method in ("dfa", "frsf") else pytest.mark.matrix,
        )
        for name in ARCHITECTURES
        for method in METHODS
    ],
)


def rough_network(name, shape=SHAPE, training=False, **options):
    return rough_learner(name, shape=shape, **options).network.train(training)


@pytest.mark.parametrize("shape", SHAPES)
@every_architecture
def test_states_logits_and_all_gradients_are_those_of_the_formula_in_both_modes(name, shape):
    network, (x, labels) = rough_network(name, shape, width=16), batch_of(shape)
    for training in (True, False):
        logits, states = by_hand(name, network, x, training)
        loss, inner = F.cross_entropy(logits, labels), [*states, *network.parameters()]
        expected = torch.autograd.grad(loss, inner)
        own_logits, own_states = network.train(training)(x, return_hidden=True)
        found = torch.autograd.grad(
            F.cross_entropy(own_logits, labels), [*own_states, *network.parameters()]
        )
        for part, formula in zip(
            (own_logits, *own_states, *found), (logits, *states, *expected), strict=True
        ):
            assert_same(part, formula)
    truth = reference(network, x, labels)
    assert_same(truth.logits, logits)
    for layer, (h, g) in enumerate(zip(states, expected)):
        assert_same(truth.states[layer], vector(h), layer)
        assert_same(truth.gradients[layer], gradient_vector(g), layer)


def hand_credits(method, name, learner, states, labels):
    """Credits of embedding and blocks of fa and dfa, from the definition."""
    given, count = (name, learner.network, states[-1], labels), len(learner.network.blocks)
    if method == "dfa":
        return [output_error(*given) @ learner.state[layer].T for layer in (0, *range(count))]
    credits = [gradient_vector(loss_slope(*given)) / len(labels)]
    for layer in reversed(range(count)):
        credits.insert(0, credits[0] @ learner.state[layer])
    return credits


def normalised(a, floor):
    return a / ((a**2).mean(dim=1, keepdim=True).sqrt() + floor)


@pytest.mark.parametrize(
    ("frozen", "penalty", "floor", "options"),
    [(0, 0.0, 1e-6, {}), (1, 0.3, 0.2, {"rms_floor": 0.2}), (0, 0.0, None, {"normalise": False})],
)
@pytest.mark.parametrize("method", ["dfa", "fa"])
@every_architecture
def test_the_engine_descends_the_local_losses_as_they_are_written(
    name, method, frozen, penalty, floor, options
):
    """Every part has its own pass and its own backward; without r(a), credits are gradients of the
    per-sample loss.
    """
    learner = rough_learner(name, method, frozen_blocks=frozen, penalty=penalty, depth=3, **options)
    network, (x, labels) = learner.network, batch_of()
    learner.train_mode()
    with torch.no_grad():
        _, states = by_hand(name, network, x, training=True, frozen=frozen)
    credits, scale = (
        hand_credits(method, name, learner, states, labels),
        len(x) if method == "fa" else 1,
    )
    embedding, *blocks = (normalised(a, floor) if floor else scale * a for a in credits)
    losses = {network.embed: local_loss(embed_by_hand(name, network, x, training=True), embedding)}
    losses[network.head] = F.cross_entropy(head_by_hand(name, network, states[-1]), labels)
    for layer in range(frozen, 3):
        f, _ = block_by_hand(name, network, layer, states[layer], training=True)
        losses[network.blocks[layer]] = local_loss(f, blocks[layer]) + penalty * energy(f)
    learn(learner, x, labels, torch.Generator())
    for part, loss in losses.items():
        for parameter, gradient in zip(
            part.parameters(), torch.autograd.grad(loss, list(part.parameters()))
        ):
            assert_same(parameter.grad, gradient)
    assert all(p.grad is None for p in network.blocks[:frozen].parameters())


@every_pair
def test_every_parameter_moves_but_what_is_frozen_which_keeps_every_bit(dataset, name, method):
    """With BatchNorm's statistics; what remains can be audited."""
    is_vit, patches = name == "vit_mini", ("embed.project.weight", "embed.project.bias")
    still_there, still_shallow = (), ()
    if is_vit and method in LOCAL:  # a loss of h_0 reads the cls token, the same for all images
        still_there = still_shallow = patches
    if is_vit and method in EXACT:  # without blocks a cls token attends to nothing
        still_shallow = patches
    if is_vit and method == "pepita":  # its second pass changes the patches, not the cls token
        still_there = still_shallow = ("embed.cls",)
    cases = [
        ({}, still_there),
        ({"shallow": True}, still_shallow),
        ({"frozen_embedding": True}, ("embed.",)),
        ({"frozen_embedding": True, "frozen_blocks": 2}, ("embed.", "blocks.")),
    ]
    for options, still in cases:
        # One epoch for each block.
        spec = spec_of(name, method, weight_decay=0.0, lr=0.01, epochs=2, **options)
        before = build(spec, dataset.image_shape, dataset.classes).network.state_dict()
        learner = train(spec, dataset).learner
        after = learner.network.state_dict()
        kept = [n for n, tensor in after.items() if torch.equal(tensor, before[n])]
        assert kept == [n for n in before if n.startswith(still)], options
        if still:
            assert audit(learner, dataset, None).finite


@pytest.mark.parametrize("method", ["frsf", "kolen_pollack"])
@pytest.mark.parametrize(("name", "gain"), [*((name, 1) for name in NOT_VECTORS), ("bn_cnn", 3)])
def test_methods_that_transport_find_the_partner_of_every_weight(name, method, gain):
    learner, (x, labels) = rough_learner(name, method, depth=3), batch_of()
    learner.network.eval()
    parts = (*learner.network.blocks.parameters(), *learner.network.head.parameters())
    weights = [p.detach() for p in parts if p.dim() > 1]
    with torch.no_grad():
        for partner, weight in zip(
            [*learner.state.buffers(), *learner.state.parameters()], weights, strict=True
        ):
            partner.copy_(gain * (weight if method == "kolen_pollack" else weight.abs()))
    truth = reference(learner.network, x, labels).gradients[1:]
    for layer, (a, g) in enumerate(zip(block_credits(learner, x, labels), truth, strict=True)):
        # bn_cnn has no skips and one weight in every block.
        assert_same(a, gain ** (3 - layer) * g, layer)


@pytest.mark.parametrize(("residual", "usual"), [(True, 0.01), (False, 0.5)])
def test_w2_std_scales_the_second_weights_and_leaves_other_draws_as_they_were(residual, usual):
    plain, small = (
        build(spec_of("resmlp", "dfa", width=64, residual=residual, w2_std=std), (3, 8, 8), 4)
        for std in (None, 0.05)
    )
    ours, theirs = small.network.state_dict(), plain.network.state_dict()
    for name, weight in ours.items():
        factor = 0.05 / usual if name.endswith("outer.weight") else 1.0
        torch.testing.assert_close(weight, factor * theirs[name], rtol=1e-6, atol=0)
    torch.testing.assert_close(small.state.B1, plain.state.B1, rtol=0, atol=0)
    assert ours["blocks.0.outer.weight"].std().item() == pytest.approx(0.05, rel=0.05)
    assert "w2_std" not in dict(plain.spec.architecture_options)


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
def test_hidden_layers_of_the_mlp_have_the_activation_asked_for(activation):
    network, s = rough_network("mlp", activation=activation), getattr(torch, activation)
    x, _ = batch_of()
    h = s(x.flatten(1) @ network.embed.linear.weight.T + network.embed.linear.bias)
    for block in network.blocks:
        h = s(h @ block.linear.weight.T + block.linear.bias)
    assert_same(network(x), network.head(h))


def test_an_unknown_activation_is_refused():
    with pytest.raises(AuditError, match="unknown activation 'sine'"):
        build(spec_of("mlp", activation="sine"), SHAPE, CLASSES)


@pytest.mark.parametrize("method", ["bp", "dfa"])
def test_the_student_is_the_residual_mlp_without_terminal_norm(dataset, method):
    student, spec = spec_of("student_mlp", method), spec_of("resmlp", method)
    options = dict(spec.architecture_options) | {"terminal_norm": False}
    mlp = replace(spec, architecture_options=tuple(sorted(options.items())))
    for make in (
        lambda s: build(s, dataset.image_shape, dataset.classes),
        lambda s: train(s, dataset).learner,
    ):
        assert_same_bits(*(learner_tensors(make(s)) for s in (student, mlp)))
