"""Direct Kolen-Pollack against the head's own learning, and against three steps written out in
plain torch.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from learners import learner_of, take_steps
from networks import (
    CLASSES,
    batch_of,
    block_by_hand,
    embed_by_hand,
    head_by_hand,
    local_loss,
    vector,
)

from fa_audit.training.learner import build

DEPTH = 2


def batches(steps):
    return [batch_of(count=6, seed=40 + step) for step in range(steps)]


@pytest.mark.parametrize(
    ("depth", "steps", "lr", "decay"), [(2, 1, 0.01, 0.1), (0, 30, 3e-3, 0.5), (3, 150, 0.05, 2.0)]
)
def test_the_topmost_matrix_converges_to_a_linear_head_by_the_decay_alone(depth, steps, lr, decay):
    options = {
        "depth": depth,
        "lr": lr,
        "weight_decay": decay,
        "terminal_norm": False,
        "penalty": 0.1,
    }
    learner = learner_of("direct_kolen_pollack", **options)
    w, b = learner.network.head.linear.weight, learner.state[depth]
    old_w, old_b = w.detach().clone(), b.detach().clone()
    take_steps(learner, batches(steps))
    difference = (1 - lr * decay) ** steps * (old_w - old_b.T)
    torch.testing.assert_close(w.detach() - b.detach().T, difference, rtol=0, atol=1e-11)
    assert (w - old_w).abs().max() > 1e-3 and (b - old_b).abs().max() > 1e-3
    assert steps < 150 or (w - b.T).abs().max() < 1e-5


def step_by_hand(name, network, feedback, x, labels, penalty):
    """Gradients of every parameter, and of every matrix from sums over samples."""
    states, terms = [embed_by_hand(name, network, x, training=False)], []
    for layer in range(DEPTH):
        f, h = block_by_hand(name, network, layer, states[-1].detach(), training=False)
        terms.append(f)
        states.append(h)
    logits = head_by_hand(name, network, states[-1].detach())
    error = (F.softmax(logits, dim=1) - F.one_hot(labels, CLASSES)).detach()
    total = F.cross_entropy(logits, labels)
    outputs = [states[0], *terms]
    for index, (b, h, f) in enumerate(zip(feedback, states, outputs, strict=True)):
        credit = torch.stack([b.detach() @ e for e in error])
        credit = credit / (credit.pow(2).mean(dim=1, keepdim=True).sqrt() + 1e-6)
        total = total + local_loss(f, credit)
        if index:
            total = total + penalty * f.pow(2).sum(dim=1 if f.dim() == 4 else -1).mean()
        outer = [torch.outer(v, e) for v, e in zip(vector(h.detach()), error, strict=True)]
        b.grad = sum(outer) / len(outer)
    for parameter, g in zip(
        network.parameters(), torch.autograd.grad(total, [*network.parameters()]), strict=True
    ):
        parameter.grad = g


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("name", ["resmlp", "vit_mini", "small_resnet", "bn_cnn"])
def test_three_steps_are_those_of_plain_torch(name, penalty):
    learner = learner_of(
        "direct_kolen_pollack", name, depth=DEPTH, lr=0.02, weight_decay=0.3, penalty=penalty
    )
    network, feedback = copy.deepcopy(learner.network).eval(), copy.deepcopy([*learner.state])
    optimiser = torch.optim.AdamW([*network.parameters(), *feedback], lr=0.02, weight_decay=0.3)
    for x, labels in batches(3):
        step_by_hand(name, network, feedback, x, labels, penalty)
        optimiser.step()
    take_steps(learner, batches(3))
    pairs = zip(
        [*learner.network.parameters(), *learner.state],
        [*network.parameters(), *feedback],
        strict=True,
    )
    for found, expected in pairs:
        torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-7, atol=1e-9)


def test_matrices_begin_uniform_within_the_limits_of_the_authors_code(make_spec):
    state = build(make_spec("direct_kolen_pollack", width=5000, depth=2), (1, 4, 4), CLASSES).state
    assert [tuple(b.shape) for b in state] == [(5000, CLASSES)] * 3
    for b in state:
        limit = (6 / 5000) ** 0.5
        assert 0.99 * limit < b.abs().max() <= limit and abs(b.mean()) < 0.05 * limit
        assert b.square().mean().item() == pytest.approx(2 / 5000, rel=0.03)
    assert not torch.equal(state[0], state[1])
