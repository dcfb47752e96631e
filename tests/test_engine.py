"""The engine's gradients against formulas written out by hand, in float64."""

import copy
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fa_audit.core.randomness import generator
from fa_audit.data.dataset import pad, training_batches
from fa_audit.methods import METHODS
from fa_audit.methods.bp import BP
from fa_audit.methods.fa import FA
from fa_audit.networks.network import Network
from fa_audit.networks.trace import trace
from fa_audit.training.learner import Learner, build, learn, normalised, residual_energy, teaching_signal
from fa_audit.training.loop import TRAJECTORY_COLUMNS, train, trajectory_csv

SHAPE, CLASSES, BATCH = (1, 4, 4), 3, 7
LOCAL = ("fa", "dfa")


def double_learner(spec):
    learner = build(spec, SHAPE, CLASSES)
    learner.network.double()
    learner.state.double()
    return learner


@pytest.fixture
def batch():
    randomness = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, *SHAPE, dtype=torch.float64, generator=randomness)
    return x, torch.randint(CLASSES, (BATCH,), generator=randomness)


def gradients(module):
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def written_out_states(network, x, residual=True):
    """States and residuals of a ResMLP, from the formula and not from the library's `split`."""
    h = [network.embed[1](x.flatten(1))]
    f = []
    for block in network.blocks:
        f.append(block.outer(F.gelu(block.inner(block.norm(h[-1])))))
        h.append(h[-1] + f[-1] if residual else f[-1])
    return h, f


# --- backpropagation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("residual", "penalty", "frozen"), [(True, 0.0, 0), (False, 0.0, 0), (True, 0.3, 1)])
def test_bp_is_autograd_of_loss_plus_energy_of_the_trained_blocks(make_spec, batch, residual, penalty, frozen):
    spec = make_spec("bp", penalty=penalty, frozen_blocks=frozen, residual=residual, terminal_norm=residual)
    learner = double_learner(spec)
    network, (x, labels) = learner.network, batch
    for block in network.blocks:  # residuals large enough for the energy to matter
        nn.init.normal_(block.outer.weight, std=0.5)
    h, f = written_out_states(network, x, residual)
    energy = sum((each**2).sum(dim=1).mean() for each in f[frozen:])
    loss = F.cross_entropy(network.head(h[-1]), labels) + penalty * energy
    parameters = [p for p in network.parameters() if p.requires_grad]
    expected = torch.autograd.grad(loss, parameters)
    plain = learn(learner, x, labels, torch.Generator())
    assert plain.item() == pytest.approx((loss - penalty * energy).item(), rel=1e-12)
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-10, atol=1e-12)


def test_bp_credits_are_per_sample_gradients(make_spec, batch):
    learner = double_learner(make_spec("bp"))
    x, labels = batch
    run = trace(learner.network, x, local=False)
    credits = BP().credits(learner.network, run, labels, learner.state)
    h, _ = written_out_states(learner.network, x)
    loss = F.cross_entropy(learner.network.head(h[-1]), labels, reduction="sum")
    expected = torch.autograd.grad(loss, h)
    torch.testing.assert_close((credits.embedding, *credits.blocks), expected, rtol=1e-10, atol=1e-14)
    assert not credits.normalise


# --- feedback methods with the true Jacobians as feedback ----------------------------------------------------------


class LinearChain(Network):
    """Linear embedding, linear blocks, linear head; nothing else."""

    def __init__(self, depth, width, skip):
        super().__init__()
        self.skip, self.width, self.classes = skip, width, CLASSES
        self.embed = nn.Sequential(nn.Flatten(), nn.Linear(16, width))
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)


@dataclass(frozen=True)
class TrueScaleFA(FA):
    """FA whose credit is not normalised; its batch-mean gradients become per-sample ones."""

    def credits(self, network, trace, labels, state):
        credits = super().credits(network, trace, labels, state)
        blocks = tuple(len(labels) * a for a in credits.blocks)
        return replace(credits, blocks=blocks, embedding=len(labels) * credits.embedding, normalise=False)


@pytest.mark.parametrize("skip", ["none", "outside"])
def test_fa_with_true_jacobians_is_backpropagation(make_spec, batch, skip):
    x, labels = batch
    with torch.random.fork_rng():
        torch.manual_seed(5)
        network, method = LinearChain(3, 6, skip).double(), TrueScaleFA()
    state = method.init_state(network, torch.Generator().manual_seed(0)).double()
    learner = Learner(make_spec("fa"), SHAPE, network, method, state)
    for index, block in enumerate(learner.network.blocks):
        learner.state[index].copy_(block.weight.detach() + (torch.eye(6) if skip == "outside" else 0))
    logits, states = learner.network(x, return_hidden=True)
    loss = F.cross_entropy(logits, labels)
    expected = torch.autograd.grad(loss, list(learner.network.parameters()), retain_graph=True)
    credits = FA().credits(learner.network, trace(learner.network, x, local=True), labels, learner.state).blocks
    torch.testing.assert_close(credits, torch.autograd.grad(loss, states)[1:], rtol=1e-10, atol=1e-15)
    learn(learner, x, labels, torch.Generator())
    for parameter, gradient in zip(learner.network.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-10, atol=1e-14)


def test_feedback_matrices_have_the_published_scale_and_shape(make_spec):
    fa, dfa = (build(make_spec(method, width=200, depth=2), SHAPE, CLASSES).state for method in LOCAL)
    assert {name: tuple(b.shape) for name, b in fa.named_buffers()} == {"B0": (200, 200), "B1": (200, 200)}
    assert {name: tuple(b.shape) for name, b in dfa.named_buffers()} == {"B0": (200, 3), "B1": (200, 3)}
    assert fa.B1.std().item() == pytest.approx(200**-0.5, rel=0.05)
    assert dfa.B1.std().item() == pytest.approx(3**-0.5, rel=0.15)
    assert not torch.equal(fa.B0, fa.B1)


# --- the engine against separate passes and separate optimisers ----------------------------------------------------


def hand_credits(method, network, state, h, labels):
    """Credits of the blocks and of the embedding, bottom to top, from the textbook formula."""
    if method == "dfa":
        error = network.head(h[-1]).softmax(dim=1) - F.one_hot(labels, CLASSES)
        matrices = [state[index] for index in range(len(network.blocks))]
        return [error @ b.T for b in matrices], error @ matrices[0].T
    top = h[-1].detach().requires_grad_()
    with torch.enable_grad():
        (credit,) = torch.autograd.grad(F.cross_entropy(network.head(top), labels), top)
    blocks = []
    for index in reversed(range(len(network.blocks))):
        blocks.insert(0, credit)
        credit = credit @ state[index]
    return blocks, credit


def rms_normalised(a):
    return a / ((a**2).mean(dim=1, keepdim=True) ** 0.5 + 1e-6)


class SeparatePasses:
    """The method as it is written down: every part has its own forward, backward and optimiser."""

    def __init__(self, learner, lr, weight_decay):
        self.network, self.state = copy.deepcopy(learner.network), copy.deepcopy(learner.state)
        parts = [self.network.embed, self.network.head, *self.network.blocks]
        self.optimisers = [torch.optim.AdamW(part.parameters(), lr=lr, weight_decay=weight_decay) for part in parts]

    def step(self, method, penalty, x, labels):
        network = self.network
        with torch.no_grad():
            h, _ = written_out_states(network, x)
            blocks, embedding = hand_credits(method, network, self.state, h, labels)
        losses = [lambda: (network.embed(x) * rms_normalised(embedding)).sum(dim=1).mean()]
        losses.append(lambda: F.cross_entropy(network.head(h[-1]), labels))
        for index in range(len(network.blocks)):
            losses.append(lambda index=index: self.block_loss(index, h[index], blocks[index], penalty))
        for optimiser, loss in zip(self.optimisers, losses, strict=True):
            optimiser.zero_grad()
            loss().backward()
            optimiser.step()

    def block_loss(self, index, h, credit, penalty):
        f = self.network.blocks[index](h)
        return (f * rms_normalised(credit)).sum(dim=1).mean() + penalty * (f**2).sum(dim=1).mean()


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("method", LOCAL)
def test_one_backward_equals_separate_passes_and_optimisers(make_spec, method, penalty):
    learner = double_learner(make_spec(method, penalty=penalty, lr=1e-3, weight_decay=0.01))
    separate = SeparatePasses(learner, lr=1e-3, weight_decay=0.01)
    optimiser = learner.optimiser()
    randomness = torch.Generator().manual_seed(2)
    for _ in range(20):
        x = torch.randn(BATCH, *SHAPE, dtype=torch.float64, generator=randomness)
        labels = torch.randint(CLASSES, (BATCH,), generator=randomness)
        optimiser.zero_grad()
        learn(learner, x, labels, torch.Generator())
        optimiser.step()
        separate.step(method, penalty, x, labels)
    for (name, ours), theirs in zip(learner.network.named_parameters(), separate.network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}")


def test_training_is_adamw_with_a_cosine_schedule(make_spec, dataset):
    """`train` against a loop written out here: order of batches, learning rates, decay, losses."""
    spec = make_spec("bp", epochs=3, lr=0.01, weight_decay=0.1)
    network = build(spec, dataset.image_shape, dataset.classes).network
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=0.1, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=3)
    padded, losses = pad(dataset.train_images, 1), []
    for epoch in range(3):
        total = 0.0
        for x, labels in training_batches(dataset, padded, 16, generator(spec.seed, "epoch", epoch)):
            optimiser.zero_grad()
            loss = F.cross_entropy(network(x), labels)
            loss.backward()
            optimiser.step()
            total += loss.item() * len(labels) / 50
        losses.append(total)
        schedule.step()
    trained = train(spec, dataset)
    for ours, theirs in zip(trained.learner.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert [row["train_loss"] for row in trained.history if row["layer"] == 0] == pytest.approx(losses, rel=1e-5)


# --- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["bp", "dfa", "kolen_pollack"])
def test_frozen_blocks_keep_their_bits(make_spec, dataset, method, frozen=2):
    spec = make_spec(method, frozen_blocks=frozen, penalty=0.01)
    before = build(spec, dataset.image_shape, dataset.classes)
    after = train(spec, dataset).learner
    locked = tuple(f"blocks.{index}." for index in range(frozen))
    for (name, old), new in zip(before.network.named_parameters(), after.network.parameters(), strict=True):
        assert torch.equal(old, new) == name.startswith(locked), name
    optimised = {id(p) for p in after.optimiser().parameters}
    assert all((id(p) in optimised) != n.startswith(locked) for n, p in after.network.named_parameters())


@pytest.mark.parametrize("method", METHODS)
def test_freezing_does_not_change_what_the_others_learn(make_spec, batch, method):
    """Credits pass frozen blocks as if they were trained; only their own gradients are missing."""
    frozen, free = (double_learner(make_spec(method, frozen_blocks=k)) for k in (2, 0))
    for learner in (frozen, free):
        learn(learner, *batch, torch.Generator())
    kept, everything = gradients(frozen.network), gradients(free.network)
    assert set(everything) - set(kept) == {name for name in everything if name.startswith(("blocks.0.", "blocks.1."))}
    for name, gradient in kept.items():
        torch.testing.assert_close(gradient, everything[name], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("method", ["bp", "dfa"])
def test_shallow_networks_have_no_blocks_and_learn(make_spec, dataset, method):
    spec = make_spec(method, shallow=True, epochs=15, lr=0.02)
    trained = train(spec, dataset)
    before = build(spec, dataset.image_shape, dataset.classes).network
    assert len(trained.learner.network.blocks) == 0
    for old, new in zip(before.parameters(), trained.learner.network.parameters(), strict=True):
        assert not torch.equal(old, new)
    assert trained.accuracy > 0.8
    assert [row["growth"] for row in trained.history] == [None] * 15


def test_shallow_dfa_teaches_the_embedding_through_the_first_matrix(make_spec, batch):
    learner, (x, labels) = double_learner(make_spec("dfa", shallow=True)), batch
    error = learner.network(x).softmax(dim=1) - F.one_hot(labels, CLASSES)
    signal = rms_normalised((error @ learner.state.B0.T).detach())
    h = learner.network.embed(x)
    (expected,) = torch.autograd.grad((h * signal).sum(dim=1).mean(), learner.network.embed[1].weight)
    learn(learner, x, labels, torch.Generator())
    torch.testing.assert_close(learner.network.embed[1].weight.grad, expected, rtol=1e-10, atol=1e-14)


def test_random_targets_leave_nothing_to_learn(make_spec, dataset, method="bp"):
    common = {"epochs": 25, "lr": 0.01, "depth": 1}
    true, random = (train(make_spec(method, random_targets=flag, **common), dataset) for flag in (False, True))
    chance = torch.tensor(float(CLASSES)).log().item()
    assert true.history[-1]["train_loss"] < 0.5 * chance and true.accuracy > 0.9
    assert random.history[-1]["train_loss"] > 0.9 * chance
    assert not torch.equal(true.learner.network.embed[1].weight, random.learner.network.embed[1].weight)


# --- pieces --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("shape", [(5, 4), (5, 3, 4), (5, 4, 2, 3)])
def test_teaching_signal_is_the_gradient_of_the_mean_inner_product(shape, normalise):
    randomness = torch.Generator().manual_seed(4)
    output = torch.randn(shape, dtype=torch.float64, generator=randomness, requires_grad=True)
    credit = torch.randn(5, 4, dtype=torch.float64, generator=randomness)
    r = rms_normalised(credit) if normalise else credit
    spread = {2: r, 3: r[:, None, :], 4: r[:, :, None, None]}[len(shape)]
    (expected,) = torch.autograd.grad((output * spread).sum(dim=1 if len(shape) == 4 else -1).mean(), output)
    torch.testing.assert_close(teaching_signal(output, credit, normalise), expected, rtol=1e-12, atol=1e-15)


def test_residual_energy_is_a_mean_over_samples_and_positions():
    f = torch.arange(24, dtype=torch.float64)
    assert residual_energy((f.view(6, 4),)) == pytest.approx((f**2).sum().item() / 6)
    assert residual_energy((f.view(2, 3, 4),)) == pytest.approx((f**2).sum().item() / 6)
    assert residual_energy((f.view(2, 3, 2, 2),)) == pytest.approx((f**2).sum().item() / 8)
    assert residual_energy((f.view(6, 4), f.view(6, 4))) == pytest.approx((f**2).sum().item() / 3)
    assert residual_energy(()) == 0


def test_normalised_credit_has_unit_rms_above_the_floor():
    credit = torch.tensor([[3.0, -4.0], [3e-6, -4e-6], [0.0, 0.0]], dtype=torch.float64)
    rms = (normalised(credit) ** 2).mean(dim=1).sqrt()
    lengths = [12.5**0.5, 12.5**0.5 * 1e-6, 0.0]
    expected = torch.tensor([length / (length + 1e-6) for length in lengths], dtype=torch.float64)
    torch.testing.assert_close(rms, expected, rtol=1e-12, atol=0)


def test_history_holds_norms_growth_and_the_cosine_at_the_block_input(make_spec, dataset):
    trained = train(make_spec("dfa", epochs=1), dataset)
    learner, x, labels = trained.learner, dataset.normalise(dataset.test_images), dataset.test_labels
    logits, states = learner.network(x, return_hidden=True)
    truth = torch.autograd.grad(F.cross_entropy(logits, labels), states)
    error = logits.softmax(dim=1) - F.one_hot(labels, CLASSES)
    rows = trained.history
    assert [row["layer"] for row in rows] == [0, 1, 2, 3] and {row["epoch"] for row in rows} == {1}
    norms = [h.norm(dim=1).median().item() for h in states]
    assert [row["hidden_norm"] for row in rows] == pytest.approx(norms, rel=1e-5)
    assert [row["grad_norm"] for row in rows] == pytest.approx([g.norm(dim=1).median().item() for g in truth], rel=1e-5)
    assert [row["growth"] for row in rows[:-1]] == pytest.approx([b / a for a, b in pairwise(norms)], rel=1e-5)
    cosines = [F.cosine_similarity(error @ learner.state[i].T, truth[i], dim=1).mean().item() for i in range(3)]
    assert [row["cosine"] for row in rows[:-1]] == pytest.approx(cosines, abs=1e-5)
    assert rows[-1]["growth"] is None and rows[-1]["cosine"] is None
    assert rows[-1]["test_accuracy"] == (logits.argmax(dim=1) == labels).double().mean().item() == trained.accuracy
    lines = trajectory_csv(rows).splitlines()
    assert lines[0].split(",") == list(TRAJECTORY_COLUMNS) and len(lines) == 5 and ",,," in lines[-1]


def test_the_same_seed_gives_the_same_bits_whatever_was_drawn_before(make_spec, dataset, method="credit_bridge"):
    torch.manual_seed(0)
    first = train(make_spec(method, epochs=1), dataset)
    torch.randn(10)
    second, other = train(make_spec(method, epochs=1), dataset), train(make_spec(method, epochs=1, seed=4), dataset)
    pairs = zip(first.learner.network.parameters(), second.learner.network.parameters(), strict=True)
    assert first.history == second.history and all(torch.equal(a, b) for a, b in pairs)
    assert first.history != other.history
