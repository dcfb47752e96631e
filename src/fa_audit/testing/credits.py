"""Checks of the credits themselves: shapes, purity, determinism, and the sign."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fa_audit.core.randomness import seeded
from fa_audit.core.vectors import cosine
from fa_audit.networks.trace import Trace, keeping_statistics, reference
from fa_audit.testing.findings import (
    differing,
    expect,
    expect_each,
    expect_finite,
    expect_none,
    expect_same,
)
from fa_audit.testing.subject import (
    CLASSES,
    HELD_OUT,
    Subject,
    clouds,
    credits_of,
    facts_of,
    gradients_of,
    named_credits,
)
from fa_audit.training.checkpoint import learner_tensors
from fa_audit.training.learner import Learner, learn, shape_problem

# Auxiliary nets learn to point, errors stay of order one.
GENTLE = {"epochs": 10, "lr": 3e-3}
# Gradients that are the same but for the order of sums deviate by less, relatively.
ROUNDING = 1e-3
_NETWORKS = ({}, {"residual": False}, {"terminal_norm": False}, {"depth": 1}, {"shallow": True})
# Relative to the longest credit: below it, a change of a sample did not matter.
_SAME_ROW = 1e-4
# The same for a sample's place: relaxations add up rounding errors.
_SAME_PLACE = 1e-2
_LEAST_COSINE = 0.1
# A cosine that no credit has by chance.
_AGAINST = -0.5
# Equal negatives reach a larger ratio of objectives, right to wrong labels.
_TELLING = 0.95
_NARROW = (torch.float16, torch.bfloat16)
# More different values than signs and the like have.
_MANY = 100


def shapes(subject: Subject) -> None:
    """Expect one float32 credit ``(B, d)`` per block and one for the embedding, at any depth, skip
    and batch size; with the trait `own_objective` also an objective. Return Credits(blocks,
    embedding), made with network.read and read_gradient.
    """
    for changes in _NETWORKS:
        learner = subject.build(**changes)
        for count in (5, 1):
            credits = credits_of(learner, *subject.batch(count))
            problem = shape_problem(learner.network, credits, count, torch.float32)
            where = f" on a batch of {count} with {changes or 'no options'}"
            expect(not problem, problem + where)
            lost = subject.method.own_objective and credits.objective is None
            expect(not lost, "own_objective and no objective")


def detached(subject: Subject) -> None:
    """Expect detached credits, and an objective that is a scalar with a graph."""
    credits = credits_of(subject.copy(), *subject.batch(5))
    found = "a graph behind the credits of {}"
    expect_each(credits.by_name(), lambda _, a: not a.requires_grad, found)
    objective = credits.objective
    if objective is not None:
        found = f"an objective of shape {tuple(objective.shape)}, with or without a graph"
        expect(objective.dim() == 0 and objective.requires_grad, found)


def finite(subject: Subject) -> None:
    """Expect finite credits before and after training, for errors of exactly 0 or 1, and for states
    of zeros. Guard divisions and logs.
    """
    batch = subject.batch(20)
    for make in (subject.build, subject.copy):
        saturated, silent = make(), make()
        saturate(saturated, 0)
        for parameter in silent.network.embed.parameters():
            parameter.data.zero_()
        cases = {"": make(), " with saturated logits": saturated, " with states of zeros": silent}
        for where, learner in cases.items():
            credits = named_credits(learner, *batch)
            learn(learner, *batch, subject.generator())
            found = credits | learner_tensors(learner) | gradients_of(learner.network)
            expect_finite(found, where)


@torch.no_grad()
def saturate(learner: Learner, label: int) -> None:
    """Make the network certain of one class, so that errors are exactly 0, 1 and -1."""
    bias = next(p for p in learner.network.head.parameters() if p.shape == (CLASSES,))
    bias.copy_(1000.0 * (torch.arange(CLASSES) == label))


def determinism(subject: Subject) -> None:
    """Expect credits and trainings with the same bits under other global random streams and another
    test set. Draw only in init_state, from its generator, and in auxiliary_loss and update_state,
    from `randomness`; learn from the training's minibatches alone.
    """
    learner, batch = subject.copy(), subject.batch(8)
    first = named_credits(learner, *batch)
    with seeded(2):
        second = named_credits(learner, *batch)
        again = subject.retrained()
    expect_same(first, second, "different credits of {} in a second call")
    expect_same(subject.tensors(), again, "different {} after a second training")
    data = clouds()
    fewer = replace(data, test_images=data.test_images[1:], test_labels=data.test_labels[1:])
    other = subject.retrained(fewer)
    expect_same(again, other, "different {} after a training with another test set")


def calls(subject: Subject) -> None:
    """Expect that a call for other samples neither overwrites credits nor changes later ones.
    Return new tensors, not a workspace; keep no last batch, counter or generator from call to call.
    """
    (x, labels), one, other = subject.batch(16), subject.build(), subject.build()
    first = named_credits(one, x[:8], labels[:8])
    kept = {name: a.clone() for name, a in first.items()}
    for learner in (one, other):
        credits_of(learner, x[8:], labels[8:])
    later = named_credits(other, x[:8], labels[:8])
    expect_same(kept, first, "credits of {} overwritten by the next call")
    expect_same(kept, later, "credits of {} that depend on an earlier batch")


def purity(subject: Subject) -> None:
    """Expect that `credits` changes no tensor, attribute, hook, gradient, mode, input or global
    random state. Move changes to update_state, or copy first.
    """
    for make in (subject.build, subject.copy):
        learner = make()
        learner.network.blocks[:1].requires_grad_(False)
        learner.train_mode()
        for parameter in [*learner.network.parameters(), *learner.state.parameters()]:
            parameter.grad = torch.full_like(parameter, 0.5) if parameter.requires_grad else None
        # Now Python's state does not follow from a seed that a method may set.
        random.random()
        x, labels = subject.batch(8)
        run = learner.trace(x)
        before = _surroundings(learner, run, labels)
        # The engine keeps running statistics, too.
        with keeping_statistics(learner.network):
            learner.method.credits(learner.network, run, labels, learner.state)
        expect_none(differing(before, _surroundings(learner, run, labels)), "credits changing {}")


def _surroundings(learner: Learner, run: Trace, labels: Tensor) -> dict[str, Any]:
    """Copy everything that `credits` can reach and must not change, by name."""
    facts: dict[str, Any] = {
        "labels": labels.clone(),
        "the global random state": torch.get_rng_state(),
        "Python's random state": random.getstate(),
        "torch's default type or threads": (torch.get_default_dtype(), torch.get_num_threads()),
        "torch's gradient mode": torch.is_grad_enabled(),
    }
    for part, module in (("network", learner.network), ("state", learner.state)):
        facts |= {f"{part}: {name}": fact for name, fact in facts_of(module).items()}
    for name, given in vars(run).items():
        tensors = given if isinstance(given, tuple) else (given,)
        facts[f"trace.{name}"] = torch.cat([tensor.detach().flatten() for tensor in tensors])
    return facts


def rows(subject: Subject) -> None:
    """Expect that another image and label in row i change row i of every credit, and no other row,
    at any place of the batch. Compute every sample's credit from its own row, or declare
    across_samples.
    """
    learner, (x, labels) = subject.copy(), subject.batch(12)
    # Wrong labels give errors of order one.
    labels = (labels + 1) % CLASSES
    before = named_credits(learner, x[:6], labels[:6])
    for row in range(6):
        images, targets = x[:6].clone(), labels[:6].clone()
        images[row], targets[row] = x[6 + row], (labels[row] + 1) % CLASSES
        after = named_credits(learner, images, targets)
        for name, a in before.items():
            longest = torch.stack([a, after[name]]).norm(dim=2).max()
            moved = (after[name] - a).norm(dim=1) > _SAME_ROW * longest
            changed = moved.nonzero().flatten().tolist()
            is_zero = not a[row].any() and not after[name][row].any()
            is_alone = subject.method.across_samples or set(changed) <= {row}
            found = f"rows {changed} of the credit of {name} following sample {row}"
            expect(is_alone and (is_zero or row in changed), found)
    turned = named_credits(learner, x[:6].flip(0), labels[:6].flip(0))
    longest = max(a.norm() for a in before.values())
    for name, a in before.items():
        # A credit that is much shorter than others is rounding, whose errors have no order.
        scale = max(a.norm(), _SAME_PLACE * longest)
        found = f"another credit of {name} for a sample at another place of the batch"
        expect(not (turned[name].flip(0) - a).norm() > _SAME_PLACE * scale, found)


def labels(subject: Subject) -> None:
    """Expect that every credit depends on the sample's label or is zero, even if no error is left
    at the top. Use `labels`, and subtract the target or prediction that has no error.
    """
    learner, (x, own) = subject.copy(), subject.batch(6)
    others = [(own + step) % CLASSES for step in (1, 2)]
    # The last: all samples are alike, which is all that a similarity knows.
    others.append(torch.zeros_like(own))
    versions = [named_credits(learner, x, given) for given in others]
    expect_none(_deaf(versions), "a credit of {} that ignores the labels")
    certain = []
    for label in (0, 1):
        saturate(learner, label)
        certain.append(named_credits(learner, x, torch.full_like(own, label)))
    if not any([*credits.values()][-1].any() for credits in certain):
        found = "a credit of {} that neither follows the label nor vanishes with the one at the top"
        expect_none(_deaf(certain), found)


def _deaf(versions: list[dict[str, Tensor]]) -> list[str]:
    """List the credits in which a non-zero sample is the same in all versions."""
    names = []
    for name, a in versions[0].items():
        same = torch.stack([a == other[name] for other in versions]).all(0).all(1)
        if (a.any(dim=1) & same).any():
            names.append(name)
    return names


def direction(subject: Subject) -> None:
    """Expect that with true feedback the topmost credit points along ``g_L``, and no credit points
    against its gradient. Credits are gradients of the loss, which training descends: check the
    sign. If the sign is random, look for a transposed weight, or a credit of another layer or
    sample.

    Random feedback has no sign, since -B is as good a draw as B. After a short training the head's
    own weight therefore replaces every direct feedback matrix in the state. The topmost credit is
    the last block's, or the embedding's in a network without blocks. A credit of zero, or of one
    direction for all samples (a global scalar error), has no sign. In other, untrained networks the
    credit must only not point against ``g_L``. Credits of an `own_objective` belong to another loss
    and are left to `downhill`.
    """
    own, mlp = subject.method.own_objective, subject.architecture == "resmlp"
    least = _AGAINST
    learners = [subject.build()]
    if mlp:
        least = -_LEAST_COSINE if own else _LEAST_COSINE
        learners = [subject.copy(**GENTLE, shallow=shallow) for shallow in (False, True)]
    for learner in learners:
        *below, top = cosines(learner, *subject.batch(HELD_OUT))
        # A value without a sign is NaN, which no comparison holds for.
        expect(not top <= least, f"a mean cosine of {top:.3f} of the topmost credit with g_L")
        against = [layer for layer, value in enumerate(below) if value < _AGAINST]
        expect(own or not mlp or not against, f"credits against the gradient below block {against}")


def cosines(learner: Learner, x: Tensor, labels: Tensor) -> list[float]:
    """Return each credit's mean cosine with the gradient, bottom to top, once the feedback is
    aligned; NaN where all samples have one direction.
    """
    _align(learner, x)
    gradients = reference(learner.network, x, labels).gradients
    found = []
    for a, g in zip(named_credits(learner, x, labels).values(), gradients, strict=True):
        value = cosine(a, g).value
        one_direction = torch.linalg.matrix_rank(a) < 2
        found.append(math.nan if value is None or one_direction else value)
    return found


@torch.no_grad()
def _align(learner: Learner, x: Tensor) -> None:
    """Replace every feedback matrix ``(d, C)`` or ``(C, d)`` by the head's weight.

    One ``(inputs, C)``, added to the input, becomes minus the logits' mean gradients there, and
    keeps its norm.
    """
    with torch.enable_grad():
        jacobian = torch.autograd.functional.jacobian(lambda x: learner.network(x).sum(0), x)
    slopes = jacobian.mean(1).flatten(1).T
    shape = (learner.network.classes, learner.network.width)
    weight = next(p for p in learner.network.head.parameters() if p.shape == shape)
    for tensor in [*learner.state.parameters(), *learner.state.buffers()]:
        for true in (weight, weight.T):
            if tensor.shape[-2:] == true.shape:
                tensor.copy_(true.expand_as(tensor))
        if tensor.shape == slopes.shape:
            tensor.copy_(-slopes * (tensor.norm() / slopes.norm()))


def downhill(subject: Subject) -> None:
    """Expect that a small step of the topmost part against its gradient lowers the batch's loss; an
    own objective must be lower for right labels than for wrong ones. Training descends credits and
    objectives: check the sign, and contrast right labels with wrong ones.

    The state is prepared as for `direction`, which does not see the sign of an objective.
    """
    if subject.method.own_objective:
        return _tell_labels(subject)
    for shallow in (False, True):
        learner, (x, labels) = subject.copy(**GENTLE, shallow=shallow), subject.batch(HELD_OUT)
        if math.isnan(cosines(learner, x, labels)[-1]):
            continue
        top = [*[learner.network.embed, *learner.network.blocks][-1].parameters()]
        slopes = torch.autograd.grad(cross_entropy(learner.network(x), labels), top)
        learn(learner, x, labels, subject.generator())
        pairs = zip(top, slopes, strict=True)
        change = -sum((p.grad * slope).sum() for p, slope in pairs if p.grad is not None)
        expect(change < 0, f"a slope of the loss of {change:.3g} along the topmost part's step")


def _tell_labels(subject: Subject) -> None:
    """Compare an own objective of held-out samples between their labels and any other ones."""
    learner, (x, labels) = subject.copy(**GENTLE), subject.batch(HELD_OUT)
    right = credits_of(learner, x, labels).objective
    wrong = []
    for step in range(1, CLASSES - 1):
        # Wrong labels of all classes are mixed.
        shift = 1 + torch.arange(len(labels)) * step % (CLASSES - 1)
        wrong.append(credits_of(learner, x, (labels + shift) % CLASSES).objective)
    least = min(wrong)
    found = f"an objective of {right:.4g} for right labels and {least:.4g} for wrong ones"
    expect(right < least - (1 - _TELLING) * abs(least), found)


def precision(subject: Subject) -> None:
    """Expect credits of a float64 copy in float64 that agree with those in float32, and are not
    rounded to less. Compute in the type of the states, without half precision or autocast.
    """
    learner, (x, labels) = subject.build(), subject.batch(16)
    single = named_credits(learner, x, labels)
    learner.network.double()
    learner.state.double()
    for name, a in named_credits(learner, x.double(), labels).items():
        expect(a.dtype == torch.float64, f"credits of {name} of {a.dtype} in a float64 network")
        # numpy computes in half precision, too, where torch does not see it.
        rounded = any(torch.equal(a.to(kind).to(a), a) for kind in _NARROW)
        found = f"credits of {name} rounded to half precision"
        expect(not rounded or len(a.unique()) <= _MANY, found)
        far = (single[name] - a).norm(dim=1) > ROUNDING * a.norm(dim=1)
        found = f"credits of {name} more than {ROUNDING} away from those in float64"
        expect(far.double().mean() <= 0.5, found)
