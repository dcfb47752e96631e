"""Limits and closed forms of the rules, in float64: fixed points, pseudo-inverses, orders of error,
averages over draws, stages. Their credits and steps are in `plain_rules`.
"""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from networks import (
    CLASSES,
    SHAPE,
    batch_of,
    credits_of,
    gradient_vector,
    learner_of,
    listed_credits,
    rough_learner,
    spec_of,
    states_and_gradients,
    take_steps,
)
from torch import nn

from fa_audit.methods import dtp_drl
from fa_audit.methods.dtp import DTP
from fa_audit.methods.dtp_drl import DTPDRL
from fa_audit.methods.dual_propagation import DualPropagation
from fa_audit.methods.ep import EP
from fa_audit.methods.forward_gradient import perturbations
from fa_audit.methods.local_losses import LocalPred
from fa_audit.methods.method import output_error
from fa_audit.methods.predictive_coding import PredictiveCoding
from fa_audit.methods.transport import partnered_weights
from fa_audit.methods.weight_mirror import WeightMirror
from fa_audit.networks.trace import trace
from fa_audit.training.learner import build, learn

DEPTH, WIDTH = 3, 8
BATCH = batch_of()


def per_sample(logits, labels):
    return F.cross_entropy(logits, labels, reduction="sum")


def gradients_of(network):
    """Of the per-sample loss by the vectors of all states, by autograd through the whole network."""
    slopes = states_and_gradients(network, *BATCH, loss_fn=per_sample)[1]
    return [gradient_vector(slope) for slope in slopes]


def linear(weight):
    layer = nn.Linear(*reversed(weight.shape), bias=False, dtype=torch.float64)
    layer.weight.data = weight.double()
    return layer


def white(shape, randn=torch.randn, **given):
    """Noise whose second moments are those of the distribution."""
    return torch.linalg.qr(randn(shape, dtype=torch.float64, **given))[0] * shape[0] ** 0.5


@pytest.mark.parametrize("architecture", ["resmlp", "small_resnet"])
def test_mirrored_weights_close_in_on_the_fixed_point_where_the_noise_is_averaged_out(
    monkeypatch, architecture
):
    learner, randomness = learner_of("weight_mirror", architecture), torch.Generator()
    method = WeightMirror(eta=0.06, decay=0.03, sigma=1.5, draws=100)
    monkeypatch.setattr(torch, "randn", white)
    before = {name: b.clone() for name, b in learner.state.named_buffers()}
    for _ in range(40):
        method.update_state(learner.network, learner.state, randomness)
    for name, w in partnered_weights(learner.network):
        limit = 0.06 / 0.03 * 1.5**2 * w.detach()
        found, old = learner.state.get_buffer(name) - limit, before[name] - limit
        torch.testing.assert_close(found, (1 - 0.03) ** 40 * old, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", ["kolen_pollack", "direct_kolen_pollack"])
@pytest.mark.parametrize(
    ("steps", "lr", "decay", "penalty"),
    [(1, 0.01, 0.1, 0), (25, 3e-3, 0.5, 0.1), (150, 0.05, 2.0, 0)],
)
def test_forward_and_feedback_weights_converge_by_the_decay_alone(rule, steps, lr, decay, penalty):
    """Of all blocks, or of the head and the topmost matrix."""
    options = {"lr": lr, "weight_decay": decay, "penalty": penalty, "terminal_norm": False}
    learner = learner_of(rule, **options)
    pairs = (
        [(w, learner.state[name]) for name, w in partnered_weights(learner.network)]
        if rule == "kolen_pollack"
        else [(learner.network.head.linear.weight, learner.state[DEPTH])]
    )
    turned = [(w, b.T if w.shape != b.shape else b) for w, b in pairs]
    before = [(w.detach().clone(), b.detach().clone()) for w, b in turned]
    take_steps(learner, [batch_of(count=6, seed=40 + step) for step in range(steps)])
    for (w, b), (old_w, old_b) in zip(turned, before, strict=True):
        expected = (1 - lr * decay) ** steps * (old_w - old_b)
        torch.testing.assert_close((w - b).detach(), expected, rtol=0, atol=1e-11)
        assert (w - old_w).abs().max() > 1e-3 and (b - old_b).abs().max() > 1e-3
        assert steps < 150 or (w - b).abs().max() < 1e-5


def test_matrices_begin_uniform_within_the_limits_of_the_authors_code(make_spec):
    state = build(make_spec("direct_kolen_pollack", width=5000, depth=2), (1, 4, 4), CLASSES).state
    assert [tuple(b.shape) for b in state] == [(5000, CLASSES)] * 3
    for b in state:
        limit = (6 / 5000) ** 0.5
        assert 0.99 * limit < b.abs().max() <= limit and abs(b.mean()) < 0.05 * limit
        assert b.square().mean().item() == pytest.approx(2 / 5000, rel=0.03)
    assert not torch.equal(state[0], state[1])


@pytest.mark.parametrize("eta", [0.01, 2.0])
def test_exact_inverses_of_linear_blocks_carry_targets_along_the_gauss_newton_direction(eta):
    learner, randomness = learner_of("dtp", residual=False), torch.Generator().manual_seed(1)
    weights = torch.eye(WIDTH) + 0.2 * torch.randn(DEPTH, WIDTH, WIDTH, generator=randomness)
    learner.network.blocks = nn.ModuleList(map(linear, weights))
    inverses = nn.ModuleList(map(linear, weights.double().inverse()))
    found = listed_credits(replace(learner, method=DTP(eta=eta), state=inverses), *BATCH)
    expected = [gradients_of(learner.network)[-1]]
    for w in reversed(weights.double()):
        expected.insert(0, torch.linalg.solve(w, expected[0].T).T)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def linear_learner(method):
    """A linear network, well conditioned, with linear inverses that start at random."""
    learner = learner_of("dtp_drl", constants=method, residual=False, terminal_norm=False)
    randomness = torch.Generator().manual_seed(4)
    noise = 0.25 * torch.randn(2, DEPTH, WIDTH, WIDTH, generator=randomness)
    top = 0.25 * torch.randn(WIDTH, CLASSES, generator=randomness)
    learner.network.blocks = nn.ModuleList(map(linear, torch.eye(WIDTH) + noise[0]))
    return replace(learner, state=nn.ModuleList(map(linear, [*noise[1], top])))


def test_without_damping_the_feedback_path_is_the_pseudo_inverse_of_the_whole_path_up(monkeypatch):
    learner = linear_learner(DTPDRL(damping=0.0))
    network, (x, labels) = learner.network, batch_of(count=16)
    run, noise = trace(network, x, local=True), torch.Generator().manual_seed(3)
    optimiser = torch.optim.SGD(learner.state.parameters(), lr=0.3, momentum=0.9)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "randn", white)
        patch.setattr(dtp_drl, "rms", lambda vectors: torch.ones_like(vectors[:, :1]))
        for _ in range(700):
            optimiser.zero_grad()
            learner.method.auxiliary_loss(network, run, labels, learner.state, noise).backward()
            optimiser.step()
    # Of the logits by every state, C x d; and back.
    paths = [network.head.linear.weight.detach()]
    for block in reversed(network.blocks):
        paths.insert(0, paths[0] @ block.weight.detach())
    *inverses, feedback = [inverse.weight.detach() for inverse in learner.state]
    down = [feedback]
    for weight in reversed(inverses):
        down.insert(0, weight @ down[0])
    for found, path in zip(down, paths, strict=True):
        torch.testing.assert_close(found, torch.linalg.pinv(path), rtol=0, atol=1e-6)
    # Inverses of single blocks are another path.
    single = torch.linalg.inv(network.blocks[0].weight.detach())
    assert (single @ down[1] - down[0]).norm() > 0.1 * down[0].norm()
    error = output_error(learner.trace(BATCH[0]), BATCH[1])
    for found, path in zip(listed_credits(learner, *BATCH), paths, strict=True):
        # The step of least norm.
        step = error @ torch.linalg.pinv(path).T
        torch.testing.assert_close(found, step, rtol=0, atol=1e-6)


def test_target_propagation_by_reconstruction_has_float64_s_credits_in_float32():
    learner, (x, _) = learner_of("dtp_drl"), batch_of(count=64)
    with torch.no_grad():
        learner.network.head.linear.weight.mul_(10)
    run = learner.trace(x)
    labels = run.logits.argmax(dim=1)
    errors = output_error(run, labels).norm(dim=1)
    sure = (errors > 1e-5) & (errors < 1e-3)
    exact = listed_credits(learner, x[sure], labels[sure])
    learner.parts.float()
    rounded = listed_credits(learner, x[sure].float(), labels[sure])
    for there, here in zip(exact, rounded, strict=True):
        assert F.cosine_similarity(there, here.double(), eps=0).min() > 0.999
    assert sure.sum() > 10


@pytest.mark.parametrize(
    "architecture", ["resmlp", "vit_mini", "small_resnet", "bn_cnn", "student_mlp"]
)
def test_errors_relax_to_the_gradient_where_predictions_are_fixed(architecture):
    learner = learner_of("predictive_coding", architecture)
    for method in (PredictiveCoding(DEPTH + 1, 1.0, True), PredictiveCoding(200, 0.2, True)):
        found = listed_credits(replace(learner, method=method), *BATCH)
        for a, g in zip(found, gradients_of(learner.network), strict=True):
            assert (a - g).norm() < 1e-6 * g.norm()


@pytest.mark.parametrize(("method", "beta"), [(EP(0.5, 200), 0.5), (PredictiveCoding(200), 1.0)])
def test_relaxation_shortens_states_whose_length_the_head_does_not_see(method, beta):
    learner = learner_of("ep", shallow=True, constants=method)
    learner.network.head.norm.eps = 0.0
    (h,) = learner.trace(BATCH[0]).states
    (credit,), (gradient,) = listed_credits(learner, *BATCH), gradients_of(learner.network)
    # By a = dCE/dh at the relaxed state, to which it is orthogonal.
    shortening = beta * credit.square().sum(dim=1)
    assert shortening.min() > 1e-3
    torch.testing.assert_close((credit * h).sum(dim=1), shortening, rtol=1e-9, atol=0)
    # The gradient leaves the length alone.
    assert (gradient * h).sum(dim=1).abs().max() < 1e-12


def missed(learner):
    """How far credits and gradients of embedding and blocks are from backpropagation's, relative
    to those.
    """
    body = [*learner.network.embed.parameters(), *learner.network.blocks.parameters()]
    credits = credits_of(learner, *BATCH)
    loss = F.cross_entropy(learner.network(BATCH[0]), BATCH[1])
    expected = [*gradients_of(learner.network), *torch.autograd.grad(loss, body)]
    found = [*credits.by_name().values(), *torch.autograd.grad(credits.objective, body)]
    pairs = zip(found, expected, strict=True)
    return [((a - g).norm() / g.norm()).item() for a, g in pairs if g.norm() > 1e-9]


@torch.no_grad()
def settling_learner(method, residual):
    """A learner whose energy is curved so evenly that relaxation settles."""
    spec = spec_of("resmlp", "ep", residual=residual, terminal_norm=residual)
    learner, randomness = build(spec, SHAPE, CLASSES, method), torch.Generator().manual_seed(3)
    learner.network.double().eval().embed[1].weight.mul_(3)
    for block in learner.network.blocks:
        nn.init.normal_(block.outer.weight, std=0.3 if residual else 0.5, generator=randomness)
        nn.init.normal_(block.outer.bias, generator=randomness)
    return learner


@pytest.mark.parametrize(("symmetric", "order", "largest"), [(False, 1, 0.05), (True, 2, 3e-4)])
@pytest.mark.parametrize("residual", [True, False])
def test_the_error_of_equilibrium_propagation_vanishes_with_beta(
    residual, symmetric, order, largest
):
    errors = []
    for beta in (1e-1, 1e-2):
        learner = settling_learner(EP(beta, 500, 0.35, symmetric), residual)
        # Behind the credits of three states, which are no gradients.
        errors.append(missed(learner)[3:])
    for coarse, fine in zip(*errors, strict=True):
        assert coarse / fine == pytest.approx(10**order, rel=0.2) and fine < largest


@pytest.mark.parametrize("architecture", ["resmlp", "student_mlp", "vit_mini"])
@pytest.mark.parametrize(("alpha", "order"), [(0.5, 2), (0.0, 1), (0.3, 1)])
def test_differences_over_beta_and_updates_tend_to_backpropagations(architecture, alpha, order):
    """Halving beta halves the error `order` times; the top has none, updates at the mean state no
    first order.
    """
    errors = []
    for beta in (0.02, 0.01):
        constants = DualPropagation(beta, alpha)
        errors.append(missed(learner_of("dual_propagation", architecture, constants=constants)))
    coarse, fine = errors
    assert coarse[DEPTH] < 1e-12 and max(fine) < 0.05
    ratios = [a / b for a, b in zip(coarse, fine, strict=True) if a > 1e-8]
    assert ratios[:DEPTH] == pytest.approx([2**order] * DEPTH, rel=0.15)
    for ratio in ratios:
        assert ratio == pytest.approx(4, rel=0.15) or (alpha != 0.5 and ratio > 1.7)


@pytest.mark.parametrize("alpha", [0.5, 0.2])
@pytest.mark.parametrize("residual", [True, False])
def test_linear_blocks_have_backpropagations_gradients_at_any_beta(residual, alpha):
    method = DualPropagation(3.0, alpha)
    learner = learner_of("dual_propagation", residual=residual, constants=method)
    weights = torch.randn(DEPTH, WIDTH, WIDTH, generator=torch.Generator().manual_seed(4)) / 3
    learner.network.blocks = nn.ModuleList(map(linear, weights))
    assert max(missed(learner)) < 1e-12


@pytest.mark.parametrize("residual", [True, False])
def test_every_pair_is_a_saddle_of_the_energies_of_its_layer_and_the_next(residual):
    constants = DualPropagation(0.1, steps=80)
    learner = learner_of("dual_propagation", residual=residual, constants=constants)
    network, run = learner.network, trace(learner.network, BATCH[0], local=True)
    h = [state.detach() for state in run.states]

    def contrast(layer, below, plus, minus):
        """The energies of a pair with s^+ less those with s^-, over 4, from both states below."""
        predicted = [network.split(layer, s)[1] for s in below]
        return sum((plus - f).square().sum() - (minus - f).square().sum() for f in predicted) / 4

    (slope,) = torch.autograd.grad(
        per_sample(network.head(run.head_input), BATCH[1]), run.head_input
    )
    plus, minus = ((h[-1] - sign * 0.05 * slope).requires_grad_() for sign in (1, -1))
    energy = 0.05 * ((plus + minus) * slope).sum()
    for layer in reversed(range(DEPTH)):
        energy = energy + contrast(layer, [h[layer]] * 2, plus, minus)
        for found in torch.autograd.grad(energy, (plus, minus)):
            assert found.abs().max() < 1e-9
        above = plus.detach(), minus.detach()
        assert (above[0] - above[1]).norm() > 1e-3
        up, down = learner.method._moves(network, layer, h[layer], above[0] - above[1])
        plus, minus = (h[layer] + up).requires_grad_(), (h[layer] - down).requires_grad_()
        energy = contrast(layer, [plus, minus], *above)


def redrawn(learner, count):
    """A learner's credits and perturbations after each of some draws."""
    randomness = torch.Generator().manual_seed(7)
    for _ in range(count):
        learner.method.update_state(learner.network, learner.state, randomness)
        yield listed_credits(learner, *BATCH), perturbations(BATCH[0], learner.state)


@pytest.mark.parametrize("name", ["resmlp", "vit_mini"])
def test_forward_gradients_are_on_average_those_of_local_losses_and_longer_by_a_normal_direction(
    name,
):
    learner, draws = learner_of("forward_gradient", name), 1000
    local = credits_of(replace(learner, method=LocalPred()), *BATCH)
    objective = credits_of(learner, *BATCH).objective
    assert objective.item() == pytest.approx(local.objective.item(), rel=1e-12)
    drawn = zip(*(credits for credits, _ in redrawn(learner, draws)), strict=True)
    longer = []
    for found, g in zip(map(torch.stack, drawn), local.by_name().values(), strict=True):
        size = g.square().sum(dim=1, keepdim=True)
        standard_error = ((size + g.square()) / draws).sqrt()
        away = (found.mean(dim=0) - g) / standard_error
        assert away.abs().max() < 4.5 and away.square().mean().item() == pytest.approx(1, abs=0.6)
        longer.append(found.square().sum(dim=2) / size[:, 0])
    assert torch.cat(longer).mean().item() == pytest.approx(g.shape[1] + 2, rel=0.05)


def test_perturbations_are_independent_standard_normal_numbers():
    learner, draws = learner_of("forward_gradient", depth=2), 1000
    # (draws, B, all d)
    n = torch.stack([torch.cat(perturbed, dim=1) for _, perturbed in redrawn(learner, draws)])
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        spread = math.sqrt((math.prod(range(1, 2 * power, 2)) - moment**2) / draws)
        assert ((n**power).mean(dim=0) - moment).abs().max() < 5 * spread
    flat = n.flatten(1)
    # Of samples, features and states: no two go together, in size neither.
    for values in (flat, flat.square() - 1):
        correlations = torch.corrcoef(values.T) - torch.eye(flat.shape[1])
        assert correlations.abs().max() < 6 / math.sqrt(draws)


@pytest.mark.parametrize(
    ("progress", "active"), [(0.0, {0, 1}), (0.32, {0, 1}), (1 / 3, {2}), (0.6, {2}), (0.9, {3})]
)
def test_only_the_stage_s_block_moves_though_momentum_and_decay_would_move_others(progress, active):
    learner = learner_of("layerwise", weight_decay=0.5, lr=0.01)
    network, optimiser = learner.network, learner.optimiser()
    groups = zip([network.embed, *network.blocks], learner.state, strict=True)
    groups = [[*part.parameters(), *nets.parameters()] for part, nets in groups]
    for at in (0.0, 0.34, 0.67, progress):
        before = [[p.detach().clone() for p in group] for group in groups]
        learner.method.begin_epoch(learner.state, at)
        optimiser.zero_grad()
        learn(learner, *BATCH, torch.Generator())
        optimiser.step()
    for index, pairs in enumerate(map(zip, groups, before)):
        assert {torch.equal(p, old) for p, old in pairs} == {index not in active}, index
    assert all(p.grad is not None for p in network.head.parameters())


def test_a_stage_begins_where_its_share_of_the_epochs_is_done_to_the_last_digit():
    learner = rough_learner("resmlp", "layerwise", depth=100)
    learner.method.begin_epoch(learner.state, 29 / 100)  # 100 times which is less than 29
    assert learner.state.stage == 29
