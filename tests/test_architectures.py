"""Every architecture against its formula written out by hand, in float64: gradients, credits, local learning."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from networks import (
    CLASSES,
    SHAPE,
    SHAPES,
    assert_same,
    attention,
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
from torch import nn

from fa_audit.methods import METHODS
from fa_audit.methods.ep import EP
from fa_audit.methods.transport import block_weights, transported_credits
from fa_audit.networks import ARCHITECTURES
from fa_audit.networks.bn_cnn import halved
from fa_audit.networks.trace import keeping_statistics, reference, trace
from fa_audit.training.checkpoint import learner_tensors
from fa_audit.training.learner import build, learn
from fa_audit.training.loop import block_credits, train

SKIPS = {"resmlp": "outside", "student_mlp": "outside", "vit_mini": "inside", "small_resnet": "inside"}
NOT_VECTORS = ("vit_mini", "small_resnet", "bn_cnn")
every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)
# Every method on one network and every network with two methods; the whole product in the matrix.
every_pair = pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(name, method, marks=[] if name == "resmlp" or method in ("dfa", "frsf") else pytest.mark.matrix)
        for name in ARCHITECTURES
        for method in METHODS
    ],
)


def rough_network(name, shape=SHAPE, training=False, **options):
    return rough_learner(name, shape=shape, **options).network.train(training)


# --- the forward pass and the reference ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@every_architecture
def test_states_logits_and_all_gradients_are_those_of_the_formula_in_both_modes(name, shape):
    network, (x, labels) = rough_network(name, shape, width=16), batch_of(shape)
    for training in (True, False):
        logits, states = by_hand(name, network, x, training)
        loss, inner = F.cross_entropy(logits, labels), [*states, *network.parameters()]
        expected = torch.autograd.grad(loss, inner)
        own_logits, own_states = network.train(training)(x, return_hidden=True)
        found = torch.autograd.grad(F.cross_entropy(own_logits, labels), [*own_states, *network.parameters()])
        for part, formula in zip((own_logits, *own_states, *found), (logits, *states, *expected), strict=True):
            assert_same(part, formula)
    truth = reference(network, x, labels)
    assert_same(truth.logits, logits)
    for layer, (h, g) in enumerate(zip(states, expected)):
        assert_same(truth.states[layer], vector(h), layer)
        assert_same(truth.gradients[layer], gradient_vector(g), layer)


@pytest.mark.parametrize("width", [2, 6, 16])
def test_attention_has_four_heads_whatever_the_width(width):
    network, (x, _) = rough_network("vit_mini", width=width), batch_of()
    layers, h = network.blocks[0].attention, network.embed(x)
    assert_same(layers(h), attention(layers, h))
    if width % 4 == 0:
        theirs = nn.MultiheadAttention(width, 4, batch_first=True, dtype=torch.float64)
        parts = (layers.query_key_value.weight, layers.query_key_value.bias, layers.out.weight, layers.out.bias)
        names = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
        theirs.load_state_dict(dict(zip(names, parts)))
        assert_same(layers(h), theirs(h, h, h, need_weights=False)[0])


@every_architecture
def test_a_lifted_vector_is_read_back_and_heard_by_the_head(name):
    network, (x, _) = rough_network(name), batch_of()
    for h in network(x, return_hidden=True)[1]:
        lifted = network.lift(vector(h), h)
        assert lifted.dim() == h.dim() and torch.equal(network.read(lifted), vector(h))
    assert_same(network.head(lifted), network(x))


# --- local learning --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
@every_architecture
def test_a_local_trace_gives_each_residual_its_own_block_only(name, training):
    network, (x, _) = rough_network(name, training=training), batch_of()
    run = trace(network, x, local=True)
    logits, states = by_hand(name, network, x, training)
    assert network.skip == SKIPS.get(name, "none")
    for found, expected in zip((run.logits, run.head_input, *run.states), (logits, states[-1], *states), strict=True):
        assert_same(found, expected)
    for layer, (f, (h, following)) in enumerate(zip(run.residuals, pairwise(states), strict=True)):
        assert_same(f, following if name == "bn_cnn" else following - h)
        slopes = torch.autograd.grad(f.square().sum(), list(network.parameters()), allow_unused=True)
        reached = {n for (n, _), slope in zip(network.named_parameters(), slopes) if slope is not None and slope.any()}
        assert reached == {n for n, _ in network.named_parameters() if n.startswith(f"blocks.{layer}.")}


def hand_credits(method, name, learner, states, labels):
    """Credits of embedding and blocks of fa and dfa, from the definition."""
    top, count = states[-1].detach().requires_grad_(), len(learner.network.blocks)
    logits = head_by_hand(name, learner.network, top)
    if method == "dfa":
        error = logits.softmax(dim=1).detach() - F.one_hot(labels, CLASSES)
        return [error @ learner.state[layer].T for layer in (0, *range(count))]
    credits = [gradient_vector(*torch.autograd.grad(F.cross_entropy(logits, labels), top))]
    for layer in reversed(range(count)):
        credits.insert(0, credits[0] @ learner.state[layer])
    return credits


def normalised(a):
    return a / ((a**2).mean(dim=1, keepdim=True).sqrt() + 1e-6)


@pytest.mark.parametrize(("frozen", "penalty"), [(0, 0.0), (1, 0.3)])
@pytest.mark.parametrize("method", ["dfa", "fa"])
@every_architecture
def test_the_engine_descends_the_local_losses_as_they_are_written(name, method, frozen, penalty):
    """Every part has its own pass and its own backward."""
    learner = rough_learner(name, method, frozen_blocks=frozen, penalty=penalty, depth=3)
    network, (x, labels) = learner.network, batch_of()
    learner.train_mode()
    with torch.no_grad():
        _, states = by_hand(name, network, x, training=True, frozen=frozen)
    embedding, *blocks = map(normalised, hand_credits(method, name, learner, states, labels))
    losses = {network.embed: local_loss(embed_by_hand(name, network, x, training=True), embedding)}
    losses[network.head] = F.cross_entropy(head_by_hand(name, network, states[-1]), labels)
    for layer in range(frozen, 3):
        f, _ = block_by_hand(name, network, layer, states[layer], training=True)
        losses[network.blocks[layer]] = local_loss(f, blocks[layer]) + penalty * energy(f)
    learn(learner, x, labels, torch.Generator())
    for part, loss in losses.items():
        for parameter, gradient in zip(part.parameters(), torch.autograd.grad(loss, list(part.parameters()))):
            assert_same(parameter.grad, gradient)
    assert all(p.grad is None for p in network.blocks[:frozen].parameters())


@every_pair
def test_every_method_moves_every_parameter_with_blocks_and_without(dataset, name, method):
    blind = name == "vit_mini" and method in ("bp", "ep")  # a cls token that attends to nothing, and exact gradients
    still = ["embed.project.weight", "embed.project.bias"] if blind else []
    for shallow, expected in ((False, []), (True, still)):
        spec = spec_of(name, method, weight_decay=0.0, lr=0.01, shallow=shallow)
        before = build(spec, dataset.image_shape, dataset.classes).network.state_dict()
        after = train(spec, dataset).learner.network
        assert len(after.blocks) == (0 if shallow else 2)
        assert [n for n, tensor in after.state_dict().items() if torch.equal(tensor, before[n])] == expected
        assert all(tensor.isfinite().all() for tensor in after.state_dict().values())


# --- credits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NOT_VECTORS)
def test_transport_through_the_true_weights_is_backpropagation_at_every_boundary(name, training):
    network, (x, labels) = rough_network(name, training=training, depth=3), batch_of()
    logits, states = by_hand(name, network, x, training)
    truth = torch.autograd.grad(F.cross_entropy(logits, labels), states)
    with keeping_statistics(network):
        run = trace(network, x, local=True)
        credits = transported_credits(network, run, labels, {w: w.detach() for _, w in block_weights(network)})
    for layer, (a, g) in enumerate(zip((credits.embedding, *credits.blocks), truth, strict=True)):
        assert_same(a, gradient_vector(g), layer)


@pytest.mark.parametrize("method", ["frsf", "kolen_pollack"])
@pytest.mark.parametrize(("name", "gain"), [*((name, 1) for name in NOT_VECTORS), ("bn_cnn", 3)])
def test_methods_that_transport_find_the_partner_of_every_weight(name, method, gain):
    learner, (x, labels) = rough_learner(name, method, depth=3), batch_of()
    learner.network.eval()
    weights = [p.detach() for p in learner.network.blocks.parameters() if p.dim() > 1]
    with torch.no_grad():
        for partner, weight in zip([*learner.state.buffers(), *learner.state.parameters()], weights, strict=True):
            partner.copy_(gain * (weight if method == "kolen_pollack" else weight.abs()))
    truth = reference(learner.network, x, labels).gradients[1:]
    for layer, (a, g) in enumerate(zip(block_credits(learner, x, labels), truth, strict=True)):
        assert_same(a, gain ** (2 - layer) * g, layer)  # bn_cnn has no skips and one weight in every block


@every_architecture
def test_one_step_of_relaxation_moves_the_last_state_against_its_gradient(name):
    """The free states have no energy: after one step only the last one has moved, by alpha beta dCE/dh_L."""
    learner, (x, labels) = rough_learner(name, "ep"), batch_of()
    network = learner.network.eval()
    top = network(x, return_hidden=True)[1][-1].detach().requires_grad_()
    loss = F.cross_entropy(head_by_hand(name, network, top), labels, reduction="sum")
    credits = EP(steps=1, alpha=0.2).credits(network, trace(network, x, local=True), labels, learner.state)
    assert_same(credits.blocks[-1], 0.2 * gradient_vector(*torch.autograd.grad(loss, top)))
    assert not any(a.any() for a in (credits.embedding, *credits.blocks[:-1]))


# --- images, depths, initialisation ----------------------------------------------------------------------------------


def images_of(dataset, shape, train_count=33):
    """The data set with as many training images of another shape, zeros around or cropped."""
    rows, columns = (side - 8 for side in shape[1:])
    return replace(
        dataset,
        train_images=F.pad(dataset.train_images[:train_count], (0, columns, 0, rows)).repeat(1, shape[0], 1, 1),
        test_images=F.pad(dataset.test_images, (0, columns, 0, rows)).repeat(1, shape[0], 1, 1),
        train_labels=dataset.train_labels[:train_count],
        mean=dataset.mean * shape[0],
        std=dataset.std * shape[0],
    )


@pytest.mark.parametrize("shape", [(2, 5, 7), (3, 9, 12), (1, 3, 2)])
@every_architecture
def test_networks_follow_the_image_and_a_last_batch_of_one_sample(dataset, name, shape):
    data = images_of(dataset, shape)  # 33 samples: 16, 16, 1
    for method in ("dfa", "usf"):
        trained = train(spec_of(name, method), data)
        assert data.image_shape == shape and trained.learner.network(torch.zeros(2, *shape)).shape == (2, CLASSES)
        assert all(tensor.isfinite().all() for tensor in learner_tensors(trained.learner).values())


def test_a_transformer_without_blocks_does_not_see_the_image():
    network, (x, _) = rough_network("vit_mini", shallow=True), batch_of()
    assert torch.equal(network(x), network(-2 * x))
    assert not torch.equal(network.embed(x), network.embed(-2 * x))


@every_architecture
def test_a_network_without_blocks_follows_the_formula(name):
    network, (x, labels) = rough_network(name, shallow=True), batch_of()
    logits, states = by_hand(name, network, x, training=False)
    assert_same(network(x), logits)
    (g,) = torch.autograd.grad(F.cross_entropy(logits, labels), states)
    assert_same(reference(network, x, labels).gradients[0], gradient_vector(g))


@pytest.mark.parametrize(("shape", "whole"), [((2, 5, 7), (8, 8)), ((1, 4, 9), (4, 12)), ((3, 8, 8), (8, 8))])
def test_the_transformer_sees_zeros_right_of_and_below_an_image(shape, whole):
    network, (x, _) = rough_network("vit_mini", shape), batch_of(shape)
    padded = torch.zeros(len(x), shape[0], *whole, dtype=torch.float64)
    padded[:, :, : shape[1], : shape[2]] = x
    other = rough_network("vit_mini", (shape[0], *whole))
    other.load_state_dict(network.state_dict())
    assert torch.equal(network(x), other(padded))
    assert network.embed(x).shape[1] == 1 + whole[0] * whole[1] // 16


@pytest.mark.parametrize(
    ("shape", "sides"),
    [((3, 32, 32), [(16, 16), (8, 8), (4, 4), (2, 2), (2, 2)]), ((1, 8, 8), [(4, 4), (2, 2), (2, 2)]),
     ((2, 5, 7), [(2, 3), (2, 3)]), ((1, 4, 20), [(2, 10), (2, 10)]), ((1, 3, 9), [(3, 9)]), ((1, 1, 1), [(1, 1)])],
)  # fmt: skip
def test_pooling_stops_before_a_side_falls_below_two_pixels(shape, sides):
    network = build(spec_of("bn_cnn", depth=len(sides)), shape, CLASSES).network
    *maps, last = network.eval()(torch.zeros(2, *shape), return_hidden=True)[1]
    assert [tuple(h.shape[2:]) for h in maps] == sides and last.shape == (2, 8)
    assert halved(sides[-1]) == sides[-1] or len(sides) < 3


PARAMETERS = {
    "resmlp": lambda c, n, d, depth: n * d + d + depth * (2 * d + 2 * (d * d + d)) + 2 * d,
    "student_mlp": lambda c, n, d, depth: n * d + d + depth * (2 * d + 2 * (d * d + d)),
    "vit_mini": lambda c, n, d, depth: (
        (16 * c * d + d) + d + (1 + n // c // 16) * d + depth * (4 * d + 4 * (d * d + d) + (8 * d * d + 5 * d)) + 2 * d
    ),
    "small_resnet": lambda c, n, d, depth: 9 * c * d + 2 * d + depth * 2 * (9 * d * d + 2 * d),
    "bn_cnn": lambda c, n, d, depth: (
        9 * c * d + 2 * d + (depth - 1) * (9 * d * d + 2 * d) + (n // c // 4**depth) * d * d + d
    ),
}


@pytest.mark.parametrize(("width", "depth"), [(16, 1), (16, 3), (32, 2)])
@every_architecture
def test_the_number_of_parameters_follows_a_formula(name, width, depth):
    network = build(spec_of(name, width=width, depth=depth), (3, 32, 32), 10).network
    expected = PARAMETERS[name](3, 3072, width, depth) + 10 * width + 10
    assert sum(p.numel() for p in network.parameters()) == expected


def test_positions_and_cls_token_are_drawn_from_a_narrow_gaussian():
    embed = build(spec_of("vit_mini", width=128), (3, 32, 32), 10).network.embed
    for drawn, tolerance in ((embed.position.detach(), 0.03), (embed.cls.detach(), 0.2)):
        assert drawn.std().item() == pytest.approx(0.02, rel=tolerance) and abs(drawn.mean()) < 0.005
    beyond = (embed.position.abs() > 2 * 0.02).double().mean().item()
    assert beyond == pytest.approx(1 - math.erf(2**0.5), rel=0.15)  # the bounds are -2 and 2, not two deviations


@pytest.mark.parametrize("method", ["bp", "dfa"])
def test_the_student_is_the_residual_mlp_without_terminal_norm(dataset, method):
    student, spec = spec_of("student_mlp", method), spec_of("resmlp", method)
    options = dict(spec.architecture_options) | {"terminal_norm": False}
    mlp = replace(spec, architecture_options=tuple(sorted(options.items())))
    for make in (lambda s: build(s, dataset.image_shape, dataset.classes), lambda s: train(s, dataset).learner):
        ours, theirs = (learner_tensors(make(s)) for s in (student, mlp))
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
