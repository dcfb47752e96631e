"""The engine's gradients against formulas written out by hand, in float64."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from networks import (
    assert_same_bits,
    block_by_hand,
    by_hand,
    energy,
    medians,
    rough_learner,
    states_and_gradients,
)

from fa_audit.core.errors import AuditError
from fa_audit.core.randomness import generator
from fa_audit.data.dataset import pad, training_batches
from fa_audit.methods import METHODS
from fa_audit.methods.bp import BP
from fa_audit.methods.dtp import DTP
from fa_audit.networks.trace import trace
from fa_audit.training.checkpoint import learner_tensors
from fa_audit.training.learner import build, learn
from fa_audit.training.loop import train
from fa_audit.training.trajectory import TRAJECTORY_COLUMNS, trajectory_csv

SHAPE, CLASSES = (1, 4, 4), 3


def gradients(module):
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("residual", "penalty", "frozen"), [(True, 0.0, 0), (False, 0.0, 0), (True, 0.3, 1)]
)
def test_bp_is_autograd_of_loss_plus_energy_of_the_trained_blocks(batch, residual, penalty, frozen):
    options = {"penalty": penalty, "frozen_blocks": frozen, "depth": 3}
    options |= {"residual": residual, "terminal_norm": residual}
    learner = rough_learner("resmlp", "bp", SHAPE, **options)
    network, (x, labels) = learner.network, batch
    logits, h = by_hand("resmlp", network, x, training=True)
    loss, energies = F.cross_entropy(logits, labels), 0.0
    for layer in range(frozen, 3):
        f, _ = block_by_hand("resmlp", network, layer, h[layer], training=True)
        energies = energies + energy(f)
    rows = torch.autograd.grad(len(x) * loss, h, retain_graph=True)
    credits = BP().credits(network, trace(network, x, local=False), labels, learner.state)
    torch.testing.assert_close((credits.embedding, *credits.blocks), rows, rtol=1e-10, atol=1e-14)
    assert not credits.normalise
    parameters = [p for p in network.parameters() if p.requires_grad]
    expected = torch.autograd.grad(loss + penalty * energies, parameters)
    plain = learn(learner, x, labels, torch.Generator())[0]
    assert plain.item() == pytest.approx(loss.item(), rel=1e-12)
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("method", "columns"), [("fa", 200), ("dfa", 3)])
def test_feedback_matrices_have_the_published_scale_and_shape(make_spec, method, columns):
    state = build(make_spec(method, width=200, depth=2), SHAPE, CLASSES).state
    assert state.B0.shape == state.B1.shape == (200, columns)
    assert state.B1.std().item() == pytest.approx(columns**-0.5, rel=0.15)
    assert not torch.equal(state.B0, state.B1)


OPTIMISERS = {
    "adamw": partial(torch.optim.AdamW, fused=True),
    "sgd": partial(torch.optim.SGD, momentum=0.9, fused=True),
}


@pytest.mark.parametrize(("name", "clip"), [("adamw", 0.0), ("sgd", 0.0), ("sgd", 0.3)])
def test_training_is_the_optimiser_with_a_cosine_schedule(make_spec, dataset, name, clip):
    """`train` against a loop written out here: order of batches, learning rates, decay, losses."""
    spec = make_spec("bp", epochs=3, lr=0.01, weight_decay=0.1, optimiser=name, clip=clip)
    network = build(spec, dataset.image_shape, dataset.classes).network
    optimiser = OPTIMISERS[name](network.parameters(), lr=0.01, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=3)
    padded, losses = pad(dataset.train_images, 1), []
    for epoch in range(3):
        total = 0.0
        randomness = generator(spec.seed, "epoch", epoch)
        for x, labels in training_batches(dataset, padded, 16, randomness):
            optimiser.zero_grad()
            loss = F.cross_entropy(network(x), labels)
            loss.backward()
            assert not clip or torch.nn.utils.clip_grad_norm_(network.parameters(), clip) > clip
            optimiser.step()
            total += loss.item() * len(labels) / 50
        losses.append(total)
        schedule.step()
    trained = train(spec, dataset)
    found = [p.detach() for p in trained.learner.network.parameters()]
    expected = [p.detach() for p in network.parameters()]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    found = [row["train_loss"] for row in trained.history if row["layer"] == 0]
    assert found == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize(
    ("method", "rate"), [("dtp", DTP().inverse_rate), ("kolen_pollack", 1), ("credit_bridge", 1)]
)
def test_parameters_of_the_state_learn_at_their_own_multiple_of_the_rate(batch, method, rate, name):
    options = {"depth": 2, "optimiser": name, "lr": 0.01, "weight_decay": 0.1}
    own, other = (rough_learner("resmlp", method, SHAPE, **options) for _ in range(2))
    ours, decay = own.optimiser(), 0.1 if method == "kolen_pollack" else 0.0
    network, state = list(other.network.parameters()), list(other.state.parameters())
    groups = [{"params": network, "weight_decay": 0.1}]
    groups.append({"params": state, "weight_decay": decay, "lr": 0.01 * rate})
    theirs = OPTIMISERS[name](groups, lr=0.01)
    randomness = [torch.Generator().manual_seed(5) for _ in range(2)]
    for epoch in range(3):
        ours.lr.fill_(0.01 / 2**epoch)
        for learner, optimiser, noise in zip((own, other), (ours, theirs), randomness):
            optimiser.zero_grad()
            learn(learner, *batch, noise)
            optimiser.step()
        for group in theirs.param_groups:
            group["lr"] /= 2
    assert_same_bits(learner_tensors(own), learner_tensors(other))


@pytest.mark.parametrize("method", ["bp", "dfa", "credit_bridge"])
def test_each_group_is_clipped_by_itself(batch, method):
    """Embedding, every block, head and the method's own nets: g * min(1, c / ||g||), whatever the
    others' norms are.
    """
    learner = rough_learner("resmlp", method, SHAPE, depth=3)
    learn(learner, *batch, torch.Generator())
    network = learner.network
    groups = []
    for part in (network.embed, *network.blocks, network.head, learner.state):
        gradients = [p.grad.clone() for p in part.parameters() if p.grad is not None]
        groups += [gradients] if gradients else []
    norms = [torch.cat([g.flatten() for g in part]).norm().item() for part in groups]
    limit = sorted(norms)[len(norms) // 2]  # some are longer, some are not
    spec = replace(learner.spec, clip_groups=limit)
    optimiser = replace(learner, spec=spec).optimiser()
    optimiser.step()
    expected = []
    for part, norm in zip(groups, norms, strict=True):
        expected += [g * min(1.0, limit / norm) for g in part]
    assert min(norms) < limit < max(norms)
    assert len(groups) == (6 if method == "credit_bridge" else 5)
    found = [p.grad for p in optimiser.parameters if p.grad is not None]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("together", [True, False])
def test_a_gradient_that_two_parameters_share_is_clipped_once(batch, together):
    """Kolen-Pollack's feedback moves by the gradients of the weights: the same tensors, in two
    groups.
    """
    learner = rough_learner("resmlp", "kolen_pollack", SHAPE, depth=2)
    learn(learner, *batch, torch.Generator())
    spec = replace(learner.spec, **{"clip" if together else "clip_groups": 1e-3})
    replace(learner, spec=spec).optimiser().step()
    network = learner.network
    parts = [network] if together else [network.embed, *network.blocks, network.head]
    for part in parts:
        norm = torch.cat([p.grad.flatten() for p in part.parameters()]).norm().item()
        assert norm == pytest.approx(1e-3, rel=1e-3)


def test_held_out_samples_are_the_last_are_never_trained_on_and_give_the_validation_accuracy(
    make_spec, dataset
):
    spec = make_spec("dfa", validation=0.2)
    images, labels = dataset.train_images, dataset.train_labels
    inverted, others = images.clone(), labels.clone()
    inverted[40:], others[40:] = 255 - images[40:], (labels[40:] + 1) % CLASSES
    cut = replace(dataset, train_images=images[:40], train_labels=labels[:40])
    trained = train(spec, dataset)
    changed = train(spec, replace(dataset, train_images=inverted, train_labels=others))
    without = train(replace(spec, validation=0.0), cut)
    assert changed.history == without.history == trained.history
    right = trained.learner.network(dataset.normalise(images[40:])).argmax(dim=1) == labels[40:]
    assert trained.validation_accuracy == right.double().mean().item()
    assert without.validation_accuracy is None
    assert changed.validation_accuracy != trained.validation_accuracy
    with pytest.raises(AuditError, match=r"validation: found 0.999 of 50 samples"):
        train(replace(spec, validation=0.999), dataset)


@pytest.mark.parametrize("method", METHODS)
def test_freezing_does_not_change_what_the_others_learn(batch, method):
    """Credits pass what is frozen as if it were trained; only its own gradients are missing."""
    options = {"frozen_blocks": 2, "frozen_embedding": True}, {}
    frozen, free = (rough_learner("resmlp", method, SHAPE, depth=3, **option) for option in options)
    for learner in (frozen, free):
        learn(learner, *batch, torch.Generator())
    kept, everything = gradients(frozen.network), gradients(free.network)
    still = ("embed.", "blocks.0.", "blocks.1.")
    assert set(everything) - set(kept) == {name for name in everything if name.startswith(still)}
    for name, gradient in kept.items():
        torch.testing.assert_close(gradient, everything[name], rtol=1e-12, atol=1e-15)


def test_random_targets_leave_nothing_to_learn(make_spec, dataset):
    options = {"epochs": 25, "lr": 0.01, "depth": 1}
    true = train(make_spec("bp", **options), dataset)
    random = train(make_spec("bp", random_targets=True, **options), dataset)
    chance = torch.tensor(float(CLASSES)).log().item()
    assert true.history[-1]["train_loss"] < 0.5 * chance and true.accuracy > 0.9
    assert random.history[-1]["train_loss"] > 0.9 * chance


def test_history_holds_what_autograd_and_the_epoch_s_minibatches_give(make_spec, dataset):
    """At the 128 first test images, and gradients at 1024 too; those behind do not count."""
    images = dataset.test_images.repeat(60, 1, 1, 1)[:1100]
    labels = dataset.test_labels.repeat(60)[:1100]
    images[1024:] = 255 - images[1024:]
    large = replace(dataset, test_images=images, test_labels=labels)
    # Too small a rate for float32: weights stay.
    trained = train(make_spec("dfa", epochs=1, lr=1e-60), large)
    network, state, rows = trained.learner.network, trained.learner.state, trained.history
    randomness = generator(trained.learner.spec.seed, "epoch", 0)
    batches = training_batches(dataset, pad(dataset.train_images, 1), 16, randomness)
    hits = [network(x).argmax(dim=1) == y for x, y in batches]
    x, many = large.normalise(images[:128]), large.normalise(images[:1024])
    states, truth = states_and_gradients(network, x, labels[:128])
    error = network(x).softmax(dim=1) - F.one_hot(labels[:128], CLASSES)
    norms, slopes = medians(states), medians(truth)
    slopes_1024 = medians(states_and_gradients(network, many, labels[:1024])[1])
    expected = {
        "hidden_norm": pytest.approx(norms, rel=1e-5),
        "grad_norm": pytest.approx(slopes, rel=1e-5),
        "grad_norm_1024": pytest.approx(slopes_1024, rel=1e-5),
    }
    growths = [above / below for below, above in pairwise(norms)]
    of_blocks = {"growth": pytest.approx(growths, rel=1e-5)}
    for name, behind in (("cosine", 1), ("cosine_at_input", 0)):
        pairs = [(error @ state[i].T, truth[i + behind]) for i in range(3)]
        cosines = [F.cosine_similarity(*pair, dim=1).mean().item() for pair in pairs]
        of_blocks[name] = pytest.approx(cosines, abs=1e-5)
    assert {name: [row[name] for row in rows] for name in expected} == expected
    assert {name: [row[name] for row in rows[:-1]] for name in of_blocks} == of_blocks
    assert all(rows[-1][name] is None for name in of_blocks)
    assert slopes != pytest.approx(slopes_1024, rel=0.01)
    assert [(row["epoch"], row["layer"]) for row in rows] == [(1, layer) for layer in range(4)]
    test_hits = network(large.normalise(images)).argmax(dim=1) == labels
    for row in rows:
        assert row["train_accuracy"] == torch.cat(hits).double().mean().item()
        assert row["test_accuracy"] == test_hits.double().mean().item() == trained.accuracy
    lines = trajectory_csv(rows).splitlines()
    assert lines[0].split(",") == list(TRAJECTORY_COLUMNS)
    assert len(lines) == 5 and ",,," in lines[-1]
