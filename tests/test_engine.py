"""The engine's gradients against formulas written out by hand, in float64."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from networks import block_by_hand, by_hand, energy, rough_learner, states_and_gradients

from fa_audit.core.errors import AuditError
from fa_audit.core.randomness import generator
from fa_audit.data.dataset import pad, training_batches
from fa_audit.methods import METHODS
from fa_audit.methods.bp import BP
from fa_audit.methods.dtp import DTP
from fa_audit.networks.trace import trace
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
    fields = {
        "penalty": penalty,
        "frozen_blocks": frozen,
        "residual": residual,
        "terminal_norm": residual,
    }
    learner = rough_learner("resmlp", "bp", SHAPE, depth=3, **fields)
    network, (x, labels) = learner.network, batch
    logits, h = by_hand("resmlp", network, x, training=True)
    f = [
        block_by_hand("resmlp", network, layer, h[layer], training=True)[0]
        for layer in range(frozen, 3)
    ]
    loss = F.cross_entropy(logits, labels)
    rows = torch.autograd.grad(len(x) * loss, h, retain_graph=True)
    credits = BP().credits(network, trace(network, x, local=False), labels, learner.state)
    torch.testing.assert_close((credits.embedding, *credits.blocks), rows, rtol=1e-10, atol=1e-14)
    assert not credits.normalise
    parameters = [p for p in network.parameters() if p.requires_grad]
    expected = torch.autograd.grad(loss + penalty * sum(map(energy, f)), parameters)
    plain = learn(learner, x, labels, torch.Generator())[0]
    assert plain.item() == pytest.approx(loss.item(), rel=1e-12)
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-10, atol=1e-12)


def test_feedback_matrices_have_the_published_scale_and_shape(make_spec):
    fa, dfa = (
        build(make_spec(method, width=200, depth=2), SHAPE, CLASSES).state
        for method in ("fa", "dfa")
    )
    assert {name: tuple(b.shape) for name, b in fa.named_buffers()} == {
        "B0": (200, 200),
        "B1": (200, 200),
    }
    assert {name: tuple(b.shape) for name, b in dfa.named_buffers()} == {
        "B0": (200, 3),
        "B1": (200, 3),
    }
    assert fa.B1.std().item() == pytest.approx(200**-0.5, rel=0.05)
    assert dfa.B1.std().item() == pytest.approx(3**-0.5, rel=0.15)
    assert not torch.equal(fa.B0, fa.B1)


OPTIMISERS = {
    "adamw": partial(torch.optim.AdamW, fused=True),
    "sgd": partial(torch.optim.SGD, momentum=0.9),
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
        for x, labels in training_batches(
            dataset, padded, 16, generator(spec.seed, "epoch", epoch)
        ):
            optimiser.zero_grad()
            loss = F.cross_entropy(network(x), labels)
            loss.backward()
            assert not clip or torch.nn.utils.clip_grad_norm_(network.parameters(), clip) > clip
            optimiser.step()
            total += loss.item() * len(labels) / 50
        losses.append(total)
        schedule.step()
    trained = train(spec, dataset)
    for ours, theirs in zip(
        trained.learner.network.parameters(), network.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert [row["train_loss"] for row in trained.history if row["layer"] == 0] == pytest.approx(
        losses, rel=1e-5
    )


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize(
    ("method", "rate"), [("dtp", DTP().inverse_rate), ("kolen_pollack", 1), ("credit_bridge", 1)]
)
def test_parameters_of_the_state_learn_at_their_own_multiple_of_the_rate(batch, method, rate, name):
    own, other = (rough_learner("resmlp", method, SHAPE, depth=2, optimiser=name, lr=0.01, weight_decay=0.1)
                  for _ in range(2))  # fmt: skip
    ours, decay = own.optimiser(), 0.1 if method == "kolen_pollack" else 0.0
    theirs = OPTIMISERS[name]([{"params": [*other.network.parameters()], "weight_decay": 0.1},
                               {"params": [*other.state.parameters()], "weight_decay": decay, "lr": 0.01 * rate}],
                              lr=0.01)  # fmt: skip
    randomness = [torch.Generator().manual_seed(5) for _ in range(2)]
    for epoch in range(3):
        ours.set_lr(0.01 / 2**epoch)
        for learner, optimiser, noise in zip((own, other), (ours, theirs), randomness):
            optimiser.zero_grad()
            learn(learner, *batch, noise)
            optimiser.step()
        for group in theirs.param_groups:
            group["lr"] /= 2
    pairs = zip([*own.network.parameters(), *own.state.parameters()],
                [*other.network.parameters(), *other.state.parameters()], strict=True)  # fmt: skip
    assert all(torch.equal(p, q) for p, q in pairs)


@pytest.mark.parametrize("method", ["bp", "dfa", "credit_bridge"])
def test_each_group_is_clipped_by_itself(batch, method):
    """Embedding, every block, head and the method's own nets: g * min(1, c / ||g||), whatever the
    others' norms are.
    """
    learner = rough_learner("resmlp", method, SHAPE, depth=3)
    learn(learner, *batch, torch.Generator())
    network = learner.network
    groups = [
        list(part.parameters())
        for part in (network.embed, *network.blocks, network.head, learner.state)
    ]
    groups = [[p.grad.clone() for p in part if p.grad is not None] for part in groups if part]
    norms = [torch.cat([g.flatten() for g in part]).norm().item() for part in groups]
    limit = sorted(norms)[len(norms) // 2]  # some are longer, some are not
    spec = replace(learner.spec, clip_groups=limit)
    optimiser = replace(learner, spec=spec).optimiser()
    optimiser.step()
    expected = [
        g * min(1.0, limit / norm) for part, norm in zip(groups, norms, strict=True) for g in part
    ]
    assert min(norms) < limit < max(norms) and len(groups) == (
        6 if method == "credit_bridge" else 5
    )
    found = [p.grad for p in optimiser.parameters if p.grad is not None]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("together", [True, False])
def test_a_gradient_that_two_parameters_share_is_clipped_once(batch, together):
    """Kolen-Pollack's feedback moves by the gradients of the weights: the same tensors, in two
    groups.
    """
    learner = rough_learner("resmlp", "kolen_pollack", SHAPE, depth=2)
    learn(learner, *batch, torch.Generator())
    learner = replace(
        learner, spec=replace(learner.spec, **{"clip" if together else "clip_groups": 1e-3})
    )
    learner.optimiser().step()
    network = learner.network
    parts = [network] if together else [network.embed, *network.blocks, network.head]
    for part in parts:
        norm = torch.cat([p.grad.flatten() for p in part.parameters()]).norm().item()
        assert norm == pytest.approx(1e-3, rel=1e-3)


def test_held_out_samples_are_the_last_are_never_trained_on_and_give_the_validation_accuracy(
    make_spec, dataset
):
    spec, images, labels = (
        make_spec("dfa", validation=0.2),
        dataset.train_images,
        dataset.train_labels,
    )
    changed = replace(dataset, train_images=images.clone(), train_labels=labels.clone())
    changed.train_images[40:], changed.train_labels[40:] = (
        255 - images[40:],
        (labels[40:] + 1) % CLASSES,
    )
    cut = replace(dataset, train_images=images[:40], train_labels=labels[:40])
    trained, *others = (
        train(spec, dataset),
        train(spec, changed),
        train(replace(spec, validation=0.0), cut),
    )
    assert all(other.history == trained.history for other in others)
    right = trained.learner.network(dataset.normalise(images[40:])).argmax(dim=1) == labels[40:]
    assert (
        trained.validation_accuracy == right.double().mean().item()
        and others[1].validation_accuracy is None
    )
    assert others[0].validation_accuracy != trained.validation_accuracy
    with pytest.raises(
        AuditError, match=r"validation: found 0.999 of 50 samples; expected some to train"
    ):
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


def test_random_targets_leave_nothing_to_learn(make_spec, dataset, method="bp"):
    common = {"epochs": 25, "lr": 0.01, "depth": 1}
    true, random = (
        train(make_spec(method, random_targets=flag, **common), dataset) for flag in (False, True)
    )
    chance = torch.tensor(float(CLASSES)).log().item()
    assert true.history[-1]["train_loss"] < 0.5 * chance and true.accuracy > 0.9
    assert random.history[-1]["train_loss"] > 0.9 * chance
    assert not torch.equal(
        true.learner.network.embed[1].weight, random.learner.network.embed[1].weight
    )


def test_history_holds_the_training_accuracy_and_the_gradient_of_1024_samples(make_spec, dataset):
    images, labels = (
        part.repeat(60, *[1] * (part.dim() - 1))[:1100]
        for part in (dataset.test_images, dataset.test_labels)
    )
    images[1024:] = 255 - images[1024:]  # these do not count
    large = replace(dataset, test_images=images, test_labels=labels)
    trained = train(
        make_spec("dfa", epochs=1, lr=1e-60), large
    )  # too small for float32: weights stay
    network, spec = trained.learner.network, trained.learner.spec
    batches = training_batches(
        dataset, pad(dataset.train_images, 1), 16, generator(spec.seed, "epoch", 0)
    )
    hits = [network(x).argmax(dim=1) == labels for x, labels in batches]
    _, truth = states_and_gradients(network, large.normalise(images[:1024]), labels[:1024])
    norms = [g.norm(dim=1).median().item() for g in truth]
    assert {row["train_accuracy"] for row in trained.history} == {
        torch.cat(hits).double().mean().item()
    }
    assert [row["grad_norm_1024"] for row in trained.history] == pytest.approx(norms, rel=1e-5)
    assert norms != pytest.approx([row["grad_norm"] for row in trained.history], rel=0.5)


def test_history_holds_norms_growth_and_the_cosines_at_both_sides_of_the_block(make_spec, dataset):
    trained = train(make_spec("dfa", epochs=1), dataset)
    learner, x, labels = (
        trained.learner,
        dataset.normalise(dataset.test_images),
        dataset.test_labels,
    )
    states, truth = states_and_gradients(learner.network, x, labels)
    logits = learner.network(x)
    error = logits.softmax(dim=1) - F.one_hot(labels, CLASSES)
    rows = trained.history
    assert [row["layer"] for row in rows] == [0, 1, 2, 3] and {row["epoch"] for row in rows} == {1}
    norms = [h.norm(dim=1).median().item() for h in states]
    assert [row["hidden_norm"] for row in rows] == pytest.approx(norms, rel=1e-5)
    assert [row["grad_norm"] for row in rows] == pytest.approx(
        [g.norm(dim=1).median().item() for g in truth], rel=1e-5
    )
    assert [row["growth"] for row in rows[:-1]] == pytest.approx(
        [b / a for a, b in pairwise(norms)], rel=1e-5
    )
    for name, behind in (("cosine", 1), ("cosine_at_input", 0)):
        pairs = [(error @ learner.state[i].T, truth[i + behind]) for i in range(3)]
        cosines = [F.cosine_similarity(*pair, dim=1).mean().item() for pair in pairs]
        assert [row[name] for row in rows[:-1]] == pytest.approx(cosines, abs=1e-5)
    assert rows[-1]["growth"] is None and rows[-1]["cosine"] is None
    assert (
        rows[-1]["test_accuracy"]
        == (logits.argmax(dim=1) == labels).double().mean().item()
        == trained.accuracy
    )
    lines = trajectory_csv(rows).splitlines()
    assert (
        lines[0].split(",") == list(TRAJECTORY_COLUMNS) and len(lines) == 5 and ",,," in lines[-1]
    )
