"""Target propagation with a difference reconstruction loss against pseudo-inverses and by hand, in
float64.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from learners import learner_of, listed_credits, take_steps
from networks import batch_of, by_hand, vector
from torch import nn

from fa_audit.methods import dtp_drl
from fa_audit.methods.dtp_drl import DTPDRL
from fa_audit.methods.method import output_error
from fa_audit.networks.trace import trace

DEPTH, WIDTH, CLASSES = 3, 8, 3
BATCH = batch_of()


def linear_learner(method):
    """A linear network, well conditioned, with linear inverses that start at random."""
    learner = learner_of("dtp_drl", constants=method, residual=False, terminal_norm=False)
    randomness = torch.Generator().manual_seed(4)

    def linear(rows, columns, identity=0.0):
        layer = nn.Linear(columns, rows, bias=False, dtype=torch.float64)
        noise = torch.randn(rows, columns, generator=randomness, dtype=torch.float64)
        layer.weight.data = identity * torch.eye(rows, columns, dtype=torch.float64) + 0.25 * noise
        return layer

    learner.network.blocks = nn.ModuleList(linear(WIDTH, WIDTH, 1.0) for _ in range(DEPTH))
    inverses = [*(linear(WIDTH, WIDTH) for _ in range(DEPTH)), linear(WIDTH, CLASSES)]
    return replace(learner, state=nn.ModuleList(inverses))


def trained_inverses(learner, monkeypatch, steps=700):
    """The inverses after gradient descent on a noise whose second moments are exactly sigma^2."""

    def white(shape, randn=torch.randn, **given):
        return torch.linalg.qr(randn(shape, dtype=torch.float64, **given))[0] * shape[0] ** 0.5

    network, (x, labels) = learner.network, batch_of(count=16)
    run, noise = trace(network, x, local=True), torch.Generator().manual_seed(3)
    optimiser = torch.optim.SGD(learner.state.parameters(), lr=0.3, momentum=0.9)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "randn", white)
        patch.setattr(dtp_drl, "rms", lambda vectors: torch.ones_like(vectors[:, :1]))
        for _ in range(steps):
            optimiser.zero_grad()
            learner.method.auxiliary_loss(network, run, labels, learner.state, noise).backward()
            optimiser.step()
    return [inverse.weight.detach() for inverse in learner.state]


def paths_of(network):
    """``J_0 .. J_L``, of the logits by every state, ``C x d``."""
    paths = [network.head.linear.weight.detach()]
    for block in reversed(network.blocks):
        paths.insert(0, paths[0] @ block.weight.detach())
    return paths


def test_without_damping_the_feedback_path_is_the_pseudo_inverse_of_the_whole_path_up(monkeypatch):
    learner = linear_learner(DTPDRL(damping=0.0))
    *inverses, feedback = trained_inverses(learner, monkeypatch)
    down = [feedback]
    for weight in reversed(inverses):
        down.insert(0, weight @ down[0])
    for found, path in zip(down, paths_of(learner.network), strict=True):
        torch.testing.assert_close(found, torch.linalg.pinv(path), rtol=0, atol=1e-6)
    single = torch.linalg.inv(learner.network.blocks[0].weight.detach())
    assert (single @ down[1] - down[0]).norm() > 0.1 * down[
        0
    ].norm()  # inverses of single blocks are another path
    error = output_error(learner.trace(BATCH[0]), BATCH[1])
    for found, path in zip(listed_credits(learner, *BATCH), paths_of(learner.network), strict=True):
        step = torch.linalg.lstsq(
            path.expand(len(error), -1, -1), error[:, :, None], driver="gelsd"
        ).solution[..., 0]
        torch.testing.assert_close(found, step, rtol=0, atol=1e-6)  # of least norm


@pytest.mark.parametrize(("architecture", "options"), [
    ("resmlp", {}), ("resmlp", {"residual": False}), ("vit_mini", {}), ("small_resnet", {}), ("bn_cnn", {}),
])  # fmt: skip
def test_credits_are_distances_to_the_written_out_targets(architecture, options):
    learner = learner_of("dtp_drl", architecture, constants=DTPDRL(eta=0.7), **options)
    network = learner.network
    logits, states = by_hand(architecture, network, BATCH[0], training=False)
    h = [*(vector(state).detach() for state in states), logits.detach()]
    target = h[-1] - 0.7 * (h[-1].softmax(dim=1) - F.one_hot(BATCH[1], CLASSES))
    expected = []
    for layer in reversed(range(DEPTH + 1)):
        at_target, at_state = (
            learner.state[layer](v).detach()
            + (v if layer < DEPTH and network.skip != "none" else 0)
            for v in (target, h[layer + 1])
        )
        target = h[layer] + at_target - at_state
        expected.insert(0, (h[layer] - target) / 0.7)
    found = listed_credits(learner, *BATCH)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-11)


def inverse_by_hand(net, v):
    if len(net) == 2:
        return v @ net[0].T + net[1]
    return F.gelu(v @ net[0].T + net[1]) @ net[2].T + net[3]


def trained_by_hand(chain, inverses, method, noise, learns, rate):
    """Steps of a chain of tanh layers and its inverses."""
    optimiser = torch.optim.AdamW([p for pair in chain for p in pair], lr=rate, weight_decay=0.1)
    feedback = torch.optim.AdamW(
        [p for net in inverses for p in net], lr=rate * method.inverse_rate, weight_decay=0.0
    )
    (w_in, b_in), *layers, (w_out, b_out) = chain
    x, labels = BATCH[0].flatten(1), BATCH[1]

    def upwards(v, layer):
        states = [v]
        for w, b in layers[layer:]:
            states.append(torch.tanh(states[-1] @ w.T + b))
        return [*states, states[-1] @ w_out.T + b_out]

    for _ in range(learns):
        with torch.no_grad():
            h = upwards(x @ w_in.T + b_in, 0)
        for layer, net in enumerate(inverses):
            with torch.no_grad():
                n = h[layer].square().mean(dim=1, keepdim=True).sqrt() * method.sigma
                n = n * torch.randn(n.shape[0], WIDTH, generator=noise)
                back = upwards(h[layer] + n, layer)[-1]
                for i in reversed(range(layer + 1, DEPTH + 1)):
                    back = (
                        h[i]
                        + inverse_by_hand(inverses[i], back)
                        - inverse_by_hand(inverses[i], h[i + 1])
                    )
            again = h[layer] + inverse_by_hand(net, back) - inverse_by_hand(net, h[layer + 1])
            loss = (again - h[layer] - n).square().sum() / n.square().sum()
            loss = loss + method.damping / 2 * sum(p.square().sum() for p in net)
            for p, slope in zip(net, torch.autograd.grad(loss, net), strict=True):
                p.grad = slope
        with torch.no_grad():
            error = h[-1].softmax(dim=1) - F.one_hot(labels, CLASSES)
            targets = [h[-1] - method.eta * error]
            for i in reversed(range(DEPTH + 1)):
                targets.insert(
                    0,
                    h[i]
                    + inverse_by_hand(inverses[i], targets[0])
                    - inverse_by_hand(inverses[i], h[i + 1]),
                )
            for layer, (w, b) in enumerate([(w_in, b_in), *layers]):
                slope = (
                    (h[layer] - targets[layer])
                    / (method.eta * len(x))
                    * (1 - h[layer] ** 2 if layer else 1)
                )
                w.grad, b.grad = slope.T @ (h[layer - 1] if layer else x), slope.sum(dim=0)
            w_out.grad, b_out.grad = error.T @ h[-2] / len(x), error.mean(dim=0)
        optimiser.step()
        feedback.step()


@pytest.mark.parametrize(
    "method", [DTPDRL(), DTPDRL(eta=0.5, sigma=0.4, inverse_rate=3.0, damping=0.1)]
)
def test_three_steps_of_training_are_those_of_a_written_out_chain(method):
    options = {
        "residual": False,
        "terminal_norm": False,
        "lr": 0.01,
        "weight_decay": 0.1,
        "normalise": False,
    }
    learner = learner_of("dtp_drl", constants=method, **options)
    with torch.random.fork_rng():
        torch.manual_seed(4)
        blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(DEPTH)
        )
    network = learner.network
    network.blocks = blocks.double()
    linear = [network.embed[1], *(block[0] for block in network.blocks), network.head.linear]
    chain = [(layer.weight.detach().clone(), layer.bias.detach().clone()) for layer in linear]
    inverses = [
        [p.detach().clone().requires_grad_() for p in net.parameters()] for net in learner.state
    ]
    before = [p.detach().clone() for net in inverses for p in net]
    trained_by_hand(chain, inverses, method, torch.Generator().manual_seed(9), learns=3, rate=0.01)
    take_steps(learner, [BATCH] * 3, torch.Generator().manual_seed(9))
    expected = [p for pair in chain for p in pair] + [p.detach() for net in inverses for p in net]
    found = [p.detach() for layer in linear for p in (layer.weight, layer.bias)]
    found += [p.detach() for net in learner.state for p in net.parameters()]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    assert all(
        (p - old).norm() > 1e-3 for p, old in zip(found[len(chain) * 2 :], before, strict=True)
    )
