"""Checks of the credits themselves: shapes, purity, determinism, and the sign."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

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
    credits_of,
    gradients_of,
    named_credits,
)
from fa_audit.training.checkpoint import learner_tensors
from fa_audit.training.learner import Learner, learn, shape_problem

# Auxiliary nets learn to point, errors stay of order one.
GENTLE = {"epochs": 10, "lr": 3e-3}
NETWORKS = ({}, {"residual": False}, {"terminal_norm": False}, {"depth": 1}, {"shallow": True})
# Relative to the longest credit: below it, a change of a sample did not matter.
_SAME_ROW = 1e-4
# The same for a sample's place: relaxations add up rounding errors.
_SAME_PLACE = 1e-2
LEAST_COSINE = 0.1
# A cosine that no credit has by chance.
AGAINST = -0.5
# Equal negatives reach a larger ratio of objectives, right to wrong labels.
_TELLING = 0.95
# Relative to the norm of the weights.
_SMALL_STEP = 1e-2


def shapes(subject: Subject) -> None:
    """Expect one float32 credit ``(B, d)`` per block and one for the embedding, at any depth, skip
    and batch size; with the trait `own_objective` also an objective. Return Credits(blocks,
    embedding), made with network.read and read_gradient.
    """
    own = credits_of(subject.build(), *subject.batch(5))
    lost = subject.method.own_objective and getattr(own, "objective", None) is None
    expect(not lost, "own_objective and no objective")
    for changes in NETWORKS:
        learner = subject.build(**changes)
        for count in (5, 1):
            credits = credits_of(learner, *subject.batch(count))
            problem = shape_problem(learner.network, credits, count, torch.float32)
            where = f" on a batch of {count} with {changes or 'no options'}"
            expect(not problem, problem + where)


def detached(subject: Subject) -> None:
    """Expect detached credits, and an objective that is a scalar with a graph."""
    credits = credits_of(subject.copy(), *subject.batch(5))
    named = credits.by_name()
    expect_each(named, lambda _, a: not a.requires_grad, "a graph behind the credits of {}")
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
        silent = make()
        for parameter in silent.network.embed.parameters():
            parameter.data.zero_()
        saturated = saturate(make())
        cases = {"": make(), " with saturated logits": saturated, " with states of zeros": silent}
        for where, learner in cases.items():
            credits = named_credits(learner, *batch)
            learn(learner, *batch, subject.generator())
            expect_finite(credits | learner_tensors(learner), where)
            expect_finite(gradients_of(learner.network), f"'s gradient{where}")


@torch.no_grad()
def saturate(learner: Learner, label: int = 0) -> Learner:
    """Make the network certain of one class, so that errors are exactly 0, 1 and -1."""
    bias = next(p for p in learner.network.head.parameters() if p.shape == (CLASSES,))
    bias.copy_(1000.0 * (torch.arange(CLASSES) == label))
    return learner


def determinism(subject: Subject) -> None:
    """Expect credits and trainings with the same bits under other global random streams and another
    test set. Draw only in init_state, from its generator, and in auxiliary_loss and update_state,
    from `randomness`; learn from the training's minibatches alone.
    """
    learner, batch = subject.copy(), subject.batch(8)
    with seeded(1):
        first = {name: a.clone() for name, a in named_credits(learner, *batch).items()}
    with seeded(2):
        second = named_credits(learner, *batch)
    expect_same(first, second, "other credits of {} in a second call")
    with seeded(3):
        again = subject.retrained()
    expect_same(subject.tensors(), again, "other {} after a second training")
    images, labels = subject.data.test_images[1:], subject.data.test_labels[1:]
    fewer = replace(subject.data, test_images=images, test_labels=labels)
    other = subject.retrained(fewer)
    expect_same(again, other, "other {} after a training with another test set")


def calls(subject: Subject) -> None:
    """Expect that a call for other samples neither overwrites credits nor changes later ones.
    Return new tensors, not a workspace; keep no last batch, counter or generator from call to call.
    """
    (x, labels), one, other = subject.batch(16), subject.build(), subject.build()
    with seeded(1):
        first = named_credits(one, x[:8], labels[:8])
    kept = {name: a.clone() for name, a in first.items()}
    for learner in (one, other):
        credits_of(learner, x[8:], labels[8:])
    with seeded(1):
        later = named_credits(other, x[:8], labels[:8])
    expect_same(kept, first, "credits of {} overwritten by the next call")
    expect_same(kept, later, "credits of {} that are others once another batch was seen")


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
        # Now neither Python's state nor torch's stream follows from a seed that a method may set.
        random.random()
        x, labels = subject.batch(8)
        run = learner.trace(x)
        before = dict(_snapshot(learner, run, labels))
        # The engine keeps running statistics, too.
        with keeping_statistics(learner.network):
            learner.method.credits(learner.network, run, labels, learner.state)
        changed = differing(before, dict(_snapshot(learner, run, labels)))
        expect_none(changed, "credits changing {}")


def _snapshot(learner: Learner, run: Trace, labels: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Copy everything that `credits` can reach and must not change, by name."""
    for name, tensor in learner_tensors(learner).items():
        yield name, tensor.clone()
    for part, root in (("network", learner.network), ("state", learner.state)):
        for name, parameter in root.named_parameters():
            yield f"requires_grad of {part}.{name}", torch.tensor(parameter.requires_grad)
        for name, gradient in gradients_of(root).items():
            yield f"the gradient of {part}.{name}", gradient.clone()
        for name, module in root.named_modules():
            for kept, value in vars(module).items():
                # A number for a mode, for hooks and parts, and for a tensor's content.
                count = len(value) if isinstance(value, dict) else getattr(value, "_version", 0)
                yield f"{part}.{name}.{kept}", torch.tensor([id(value), count])
    for name, given in vars(run).items():
        for index, tensor in enumerate(given if isinstance(given, tuple) else (given,)):
            yield f"trace.{name} {index}", tensor.detach().clone()
    yield "labels", labels.clone()
    yield "the global random state", torch.get_rng_state()
    yield "Python's random state", torch.tensor(random.getstate()[1])
    settings = [torch.get_default_dtype().itemsize, torch.get_num_threads()]
    yield "torch's default type or threads", torch.tensor(settings)
    yield "torch's gradient mode", torch.tensor(torch.is_grad_enabled())


def rows(subject: Subject) -> None:
    """Expect that another image and label in row i change row i of every credit, and no other row.
    Compute every sample's credit from its own row, or declare across_samples.
    """
    learner, (x, labels) = subject.copy(), subject.batch(12)
    # Wrong labels give errors of order one.
    labels = (labels + 1) % CLASSES
    before = named_credits(learner, x[:6], labels[:6])
    for row in range(6):
        images, targets = x[:6].clone(), labels[:6].clone()
        images[row], targets[row] = x[6 + row], (labels[row] + 1) % CLASSES
        after = named_credits(learner, images, targets)
        for name, credit in before.items():
            longest = torch.stack([credit, after[name]]).norm(dim=-1).max()
            moved = (after[name] - credit).norm(dim=-1) > _SAME_ROW * longest
            changed = moved.nonzero().flatten().tolist()
            zero = not credit[row].any() and not after[name][row].any()
            alone = subject.method.across_samples or set(changed) <= {row}
            found = f"rows {changed} of the credit of {name} following sample {row}"
            expect(alone and (zero or row in changed), found)
    turned = named_credits(learner, x[:6].flip(0), labels[:6].flip(0))
    longest = max(a.norm() for a in before.values())

    def same(name: str, a: Tensor) -> bool:
        # Rounding errors have no order.
        scale = max(a.norm(), _SAME_PLACE * longest)
        return not (turned[name].flip(0) - a).norm() > _SAME_PLACE * scale

    expect_each(before, same, "another credit of {} for a sample at another place of the batch")


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
    least = AGAINST
    learners = [subject.build()]
    if mlp:
        least = -LEAST_COSINE if own else LEAST_COSINE
        learners = [subject.copy(**GENTLE, shallow=shallow) for shallow in (False, True)]
    for learner in learners:
        *below, (name, value) = cosines(learner, *subject.batch(HELD_OUT)).items()
        found = "a mean cosine of {:.3f} between the credit of {} and the gradient there"
        # A value without a sign is NaN, which no comparison holds for.
        expect(not value <= least, found.format(value, name))
        for name, value in below if mlp and not own else ():
            expect(not value < AGAINST, found.format(value, name))


def cosines(learner: Learner, x: Tensor, labels: Tensor) -> dict[str, float]:
    """Return each credit's mean cosine with the gradient, bottom to top, once the feedback is
    `aligned`, or NaN.
    """
    credits = named_credits(aligned(learner, x), x, labels)
    gradients = reference(learner.network, x, labels).gradients
    found = {}
    for (name, a), g in zip(credits.items(), gradients, strict=True):
        value = cosine(a, g).value
        one_direction = torch.linalg.matrix_rank(a) < 2
        found[name] = math.nan if value is None or one_direction else value
    return found


def topmost_cosine(learner: Learner, x: Tensor, labels: Tensor) -> float:
    """Return the topmost credit's mean cosine with the gradient, as in `cosines`."""
    return [*cosines(learner, x, labels).values()][-1]


def downhill(subject: Subject) -> None:
    """Expect that a small step of the topmost part against its gradient lowers the batch's loss; an
    own objective must be lower for right labels than for wrong ones. Training descends credits and
    objectives: check the sign, and contrast right labels with wrong ones.

    The state is prepared as for `direction`, which does not see the sign of an objective.
    """
    if subject.method.own_objective:
        return _tells_labels(subject)
    for shallow in (False, True):
        learner, (x, labels) = subject.copy(**GENTLE, shallow=shallow), subject.batch(HELD_OUT)
        if math.isnan(topmost_cosine(learner, x, labels)):
            continue
        part = [learner.network.embed, *learner.network.blocks][-1]
        learn(learner, x, labels, subject.generator())
        steps = {p: p.grad.double() for p in part.parameters() if p.grad is not None}
        expect(steps, "no gradient on the topmost part")
        before = _loss(learner, x, labels)
        size = torch.cat([p.flatten() for p in steps]).norm()
        slope = torch.cat([g.flatten() for g in steps.values()]).norm()
        for parameter, gradient in steps.items():
            parameter.data.sub_(_SMALL_STEP * size / slope * gradient)
        after = _loss(learner, x, labels)
        expect(after < before, f"a loss that goes from {before:.6f} to {after:.6f}")


def _tells_labels(subject: Subject) -> None:
    """Compare an own objective on held-out samples for their labels and for other labels."""
    learner, (x, labels) = subject.copy(**GENTLE), subject.batch(HELD_OUT)
    right = credits_of(learner, x, labels).objective
    wrong = []
    for step in range(1, CLASSES - 1):
        # Wrong labels of all classes are mixed.
        shift = 1 + torch.arange(len(labels)) * step % (CLASSES - 1)
        wrong.append(credits_of(learner, x, (labels + shift) % CLASSES).objective)
    least = min(wrong)
    found = f"an objective of {right:.4g} for the labels and {least:.4g} for others"
    expect(right < least - (1 - _TELLING) * abs(least), found)


@torch.no_grad()
def aligned(learner: Learner, x: Tensor) -> Learner:
    """Replace every feedback matrix ``(d, C)`` or ``(C, d)`` by the head's weight; return the
    learner.

    Feedback to the input, ``(inputs, C)``, becomes minus the mean gradient of the logits there, and
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
    return learner


@torch.no_grad()
def _loss(learner: Learner, x: Tensor, labels: Tensor) -> float:
    """Return the cross-entropy in float64, which resolves small steps."""
    return F.cross_entropy(learner.network.double()(x.double()), labels).item()
