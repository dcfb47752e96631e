"""Checks of the credits themselves: shapes, purity, determinism, and the sign."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fa_audit.core.randomness import generator, seeded
from fa_audit.core.vectors import cosine
from fa_audit.networks.trace import Trace, keeping_statistics, reference
from fa_audit.testing.findings import differing, expect, expect_finite, expect_none, expect_same
from fa_audit.testing.subject import CLASSES, HELD_OUT, WIDTH, Subject, credits_of, named
from fa_audit.training.checkpoint import learner_tensors
from fa_audit.training.learner import Learner, learn, shape_problem
from fa_audit.training.loop import train

GENTLE = {"epochs": 10, "lr": 3e-3}  # auxiliary nets learn to point, errors stay of order one
SAME_ROW = (
    1e-4  # change of a credit, relative to the longest one, below which a sample did not matter
)
SAME_PLACE = (
    1e-2  # likewise, below which its place did not: relaxations add up the kernels' rounding errors
)
LEAST_COSINE = 0.1
AGAINST = -0.5  # cosine that no credit has by chance
TELLING = 0.95  # ratio of an objective for the labels to that for wrong ones, above what equal negatives reach
SMALL_STEP = 1e-2  # relative to the norm of the weights

SIGN = "credits are gradients of the loss, which training descends: check the sign"


def shapes(subject: Subject) -> None:
    """Check for one float32 credit ``(B, d)`` per block and for the embedding, at any depth, skip
    and batch size.

    An `own_objective` comes with its objective.
    """
    lost = (
        subject.method.own_objective
        and credits_of(subject.build(), *subject.batch(5)).objective is None
    )
    expect(
        not lost,
        "own_objective and no objective",
        "Credits(..., objective=loss)",
        "return it, or drop the trait",
    )
    for changes in (
        {},
        {"residual": False},
        {"terminal_norm": False},
        {"depth": 1},
        {"shallow": True},
    ):
        for count in (5, 1):
            learner = subject.build(**changes)
            problem = shape_problem(
                learner.network, credits_of(learner, *subject.batch(count)), count, torch.float32
            )
            found = f"{problem} on a batch of {count}" + f" with {changes}" * bool(changes)
            layers = len(learner.network.blocks)
            expected = f"float32 credits ({count}, {WIDTH}), {layers} for the blocks and 1 for the embedding"
            expect(
                not problem,
                found,
                expected,
                "return Credits(blocks, embedding), from network.read and read_gradient",
            )


def detached(subject: Subject) -> None:
    """Check that credits are detached, and that an objective is a scalar with a graph."""
    credits = credits_of(subject.copy(), *subject.batch(5))
    attached = [name for name, a in named(credits).items() if a.requires_grad]
    expect_none(attached, "a graph behind the credits of {}", "none", "return credits.detach()")
    if (objective := credits.objective) is not None:
        found = f"an objective of shape {tuple(objective.shape)}, requires_grad={objective.requires_grad}"
        scalar = objective.dim() == 0 and objective.requires_grad
        expect(scalar, found, "a scalar with a graph", "return a mean over the batch, not detached")


def finite(subject: Subject) -> None:
    """Check for NaN and Inf, untrained and trained, where errors are exactly 0 or 1, and where
    states are zero.
    """
    for when, made in (("untrained", subject.build), ("trained", subject.copy)):
        silent = made()
        for parameter in silent.network.embed.parameters():
            parameter.data.zero_()
        cases = {
            "": made(),
            " with saturated logits": saturate(made()),
            " with states of zeros": silent,
        }
        for where, learner in cases.items():
            x, labels = subject.batch(20)
            credits = named(credits_of(learner, x, labels))
            learn(learner, x, labels, generator(0, "method"))
            parameters = learner.network.named_parameters()
            gradients = {
                f"the gradient of {name}": p.grad for name, p in parameters if p.grad is not None
            }
            expect_finite(
                credits | learner_tensors(learner) | gradients, f"of the {when} learner{where}"
            )


@torch.no_grad()
def saturate(learner: Learner, label: int = 0) -> Learner:
    """Make the network certain of one class: the error of a sample is exactly 0, or 1 and -1;
    returns the learner.
    """
    bias = next(p for p in learner.network.head.parameters() if p.shape == (CLASSES,))
    bias.copy_(1000.0 * (torch.arange(CLASSES) == label))
    return learner


def determinism(subject: Subject) -> None:
    """Check that credits and trainings are the same bits with other global streams, and with
    another test set.
    """
    learner, batch = subject.copy(), subject.batch(8)
    with seeded(1):
        first = {name: a.clone() for name, a in named(credits_of(learner, *batch)).items()}
    with seeded(2):
        second = named(credits_of(learner, *batch))
    advice = "draw in init_state from its generator, in auxiliary_loss and update_state from `randomness`, nowhere else"
    expect_same(first, second, "other credits of {} in a second call", advice)
    with seeded(3):
        again = train(subject.spec(), subject.data, method=subject.fresh())
    both = map(learner_tensors, (subject.trained().learner, again.learner))
    expect_same(*both, "other {} after a second training", advice)
    fewer = {name: getattr(subject.data, name)[1:] for name in ("test_images", "test_labels")}
    other = train(subject.spec(), replace(subject.data, **fewer), method=subject.fresh())
    both = map(learner_tensors, (again.learner, other.learner))
    expect_same(
        *both,
        "other {} after a training with another test set",
        "learn from the training's minibatches alone",
    )


def calls(subject: Subject) -> None:
    """Check that a call for other samples neither overwrites credits nor changes later ones."""
    (x, labels), one, other = subject.batch(16), subject.build(), subject.build()
    with seeded(1):
        first = named(credits_of(one, x[:8], labels[:8]))
    kept = {name: a.clone() for name, a in first.items()}
    for learner in (one, other):
        credits_of(learner, x[8:], labels[8:])
    with seeded(1):
        later = named(credits_of(other, x[:8], labels[:8]))
    advice = "return new tensors, not a workspace that the next call fills"
    expect_same(kept, first, "credits of {} overwritten by the next call", advice)
    advice = "keep nothing from call to call: no last batch, no counter, no generator of the method's own"
    expect_same(kept, later, "credits of {} that are others once another batch was seen", advice)


def purity(subject: Subject) -> None:
    """Check that `credits` changes no tensor, attribute, hook, gradient, mode, input or global
    random state.
    """
    for made in (subject.build, subject.copy):
        learner = made()
        learner.network.blocks[:1].requires_grad_(False)
        learner.train_mode()
        for parameter in [*learner.network.parameters(), *learner.state.parameters()]:
            parameter.grad = torch.full_like(parameter, 0.5) if parameter.requires_grad else None
        random.random()  # neither this state nor that of torch's stream follows from a seed that a method may set
        x, labels = subject.batch(8)
        run = learner.trace(x)
        before = dict(_snapshot(learner, run, labels))
        with keeping_statistics(learner.network):  # as the engine does
            learner.method.credits(learner.network, run, labels, learner.state)
        changed = differing(before, dict(_snapshot(learner, run, labels)))
        expect_none(
            changed,
            "credits changing {}",
            "nothing changed",
            "move it to update_state, or copy first",
        )


def _snapshot(learner: Learner, run: Trace, labels: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Copy everything that `credits` can reach and must not change, by name."""
    for part, root in (("network", learner.network), ("state", learner.state)):
        for name, parameter in root.named_parameters():
            yield f"{part}.{name}", parameter.detach().clone()
            yield f"requires_grad of {part}.{name}", torch.tensor(parameter.requires_grad)
            if parameter.grad is not None:
                yield f"the gradient of {part}.{name}", parameter.grad.clone()
        for name, buffer in root.named_buffers():
            yield f"{part}.{name}", buffer.clone()
        for name, module in root.named_modules():
            yield f"the mode of {part}.{name}", torch.tensor(module.training)
            for kept, value in vars(
                module
            ).items():  # a number for hooks and parts, and for a tensor's content
                count = len(value) if isinstance(value, dict) else getattr(value, "_version", 0)
                yield f"{part}.{name}.{kept}", torch.tensor([id(value), count])
    for name, given in vars(run).items():
        for index, tensor in enumerate(given if isinstance(given, tuple) else (given,)):
            yield f"trace.{name} {index}", tensor.detach().clone()
    yield "labels", labels.clone()
    yield "the global random state", torch.get_rng_state()
    yield "Python's random state", torch.tensor(random.getstate()[1])
    settings = (
        torch.get_default_dtype().itemsize,
        torch.get_num_threads(),
        torch.is_grad_enabled(),
    )
    yield "torch's default type, threads or gradient mode", torch.tensor(settings)


def rows(subject: Subject) -> None:
    """Check that another image and label in row i change row i of every credit, and no other,
    wherever it is.
    """
    learner, (x, labels) = subject.copy(), subject.batch(12)
    labels = (labels + 1) % CLASSES  # wrong ones: errors of order one
    before = named(credits_of(learner, x[:6], labels[:6]))
    advice = "take credits from their own rows, by one rule, or declare across_samples, which forbids nothing"
    for row in range(6):
        index = [6 + row if other == row else other for other in range(6)]
        own_label = torch.tensor([other == row for other in range(6)]).long()
        after = named(credits_of(learner, x[index], (labels[:6] + own_label) % CLASSES))
        for name, credit in before.items():
            scale = torch.stack([credit, after[name]]).norm(dim=-1).max()
            changed = (
                ((after[name] - credit).norm(dim=-1) > SAME_ROW * scale)
                .nonzero()
                .flatten()
                .tolist()
            )
            found = f"rows {changed} of the credit of {name} following sample {row}"
            zero = not credit[row].any() and not after[name][row].any()
            others = [] if subject.method.across_samples else set(changed) - {row}
            expect(not others and (zero or row in changed), found, f"row {row} alone", advice)
    turned = named(credits_of(learner, x[:6].flip(0), labels[:6].flip(0)))
    longest = max(a.norm() for a in before.values())
    scale = {
        name: max(a.norm(), SAME_PLACE * longest) for name, a in before.items()
    }  # rounding errors have no order
    moved = [
        name
        for name, a in before.items()
        if (turned[name].flip(0) - a).norm() > SAME_PLACE * scale[name]
    ]
    expect_none(
        moved, "another credit of {} for a sample at another place of the batch", "the same", advice
    )


def direction(subject: Subject) -> None:
    """Check the signs of credits: with true feedback the topmost points along ``g_L``, and none
    against its gradient.

    Random feedback cannot have a wrong sign, since -B is as good a draw as B; the head's own weight
    can. So after a short training it replaces every direct feedback matrix in the state. The
    topmost credit is the last block's, or the embedding's in a network without blocks. One that is
    zero, or the same direction for all samples (a global scalar error), has no sign. In other
    networks, untrained, it must only not point against ``g_L``, and in none the credit of an
    `own_objective`, which is for another loss: `downhill` checks what it lowers.
    """
    mlp = subject.architecture == "resmlp"
    least = (-LEAST_COSINE if subject.method.own_objective else LEAST_COSINE) if mlp else AGAINST
    for learner in (
        [subject.copy(**GENTLE, shallow=s) for s in (False, True)] if mlp else [subject.build()]
    ):
        *below, (name, value) = cosines(learner, *subject.batch(HELD_OUT)).items()
        advice = SIGN
        if abs(value) < LEAST_COSINE:
            advice = "neither sign points there: look for a transposed weight, or a credit of another layer or sample"
        found = f"a mean cosine of {value:.3f} between the credit of {name} and g_L"
        expect(
            not value <= least,
            found,
            f"more than {least} with the head's weight as feedback",
            advice,
        )
        for name, value in below if mlp and not subject.method.own_objective else ():
            found = (
                f"a mean cosine of {value:.3f} between the credit of {name} and the gradient there"
            )
            expect(
                not value < AGAINST,
                found,
                f"at least {AGAINST} with the head's weight as direct feedback",
                SIGN,
            )


def cosines(learner: Learner, x: Tensor, labels: Tensor) -> dict[str, float]:
    """Return each credit's mean cosine with the gradient, bottom to top, once the feedback is
    `aligned`, or NaN.
    """
    credits = named(credits_of(aligned(learner, x), x, labels))
    found = {}
    for (name, a), g in zip(
        credits.items(), reference(learner.network, x, labels).gradients, strict=True
    ):
        measured, one_direction = cosine(a, g).value, bool(torch.linalg.matrix_rank(a) < 2)
        found[name] = math.nan if measured is None or one_direction else measured
    return found


def topmost_cosine(learner: Learner, x: Tensor, labels: Tensor) -> tuple[str, float]:
    """Return the name of the topmost credit and its value in `cosines`."""
    return [*cosines(learner, x, labels).items()][-1]


def downhill(subject: Subject) -> None:
    """Check that a small step of the topmost part against its accumulated gradient lowers the
    batch's loss.

    The state is prepared as for `direction`. Unlike that check it sees the sign of an objective. An
    `own_objective` is not about that loss: after a short training it must be lower for the labels
    than for wrong ones.
    """
    if subject.method.own_objective:
        return _tells_labels(subject)
    for shallow in (False, True):
        learner, (x, labels) = subject.copy(**GENTLE, shallow=shallow), subject.batch(HELD_OUT)
        if math.isnan(topmost_cosine(learner, x, labels)[1]):
            continue
        part = [learner.network.embed, *learner.network.blocks][-1]
        learn(learner, x, labels, generator(subject.seed, "method"))
        steps = {p: p.grad.double() for p in part.parameters() if p.grad is not None}
        expect(
            bool(steps), "no gradient on the topmost part", "one", "return a credit for every block"
        )
        before = _loss(learner, x, labels)
        size, slope = (
            torch.cat([t.flatten() for t in tensors]).norm() for tensors in (steps, steps.values())
        )
        with torch.no_grad():
            for parameter, gradient in steps.items():
                parameter.sub_(SMALL_STEP * size / slope * gradient)
        after = _loss(learner, x, labels)
        found, advice = (
            f"a loss that goes from {before:.6f} to {after:.6f}",
            "credits and objectives are descended",
        )
        expect(after < before, found, "a lower one after a small step", f"{advice}: check the sign")


def _tells_labels(subject: Subject) -> None:
    """Check that an own objective of held-out samples is lower for their labels than for any other
    ones.
    """
    learner, (x, labels) = subject.copy(**GENTLE), subject.batch(HELD_OUT)
    shifts = (
        1 + torch.arange(len(labels)) * step % (CLASSES - 1) for step in range(1, CLASSES - 1)
    )  # mixed
    right, *wrong = (
        credits_of(learner, x, (labels + shift) % CLASSES).objective for shift in (0, *shifts)
    )
    found = f"an objective of {right:.4g} for the labels and {(least := min(wrong)):.4g} for others"
    told = bool(right < least - (1 - TELLING) * abs(least))
    expect(told, found, f"a ratio below {TELLING}", "contrast right labels with wrong ones")


def aligned(learner: Learner, x: Tensor) -> Learner:
    """Replace every feedback matrix ``(d, C)`` or ``(C, d)`` by the head's weight; returns the
    learner.

    One ``(inputs, C)``, added to the input, becomes minus the logits' mean gradients there, and
    keeps its norm.
    """
    slopes = (
        torch.autograd.functional.jacobian(lambda x: learner.network(x).sum(0), x)
        .mean(1)
        .flatten(1)
        .T
    )
    shape = (learner.network.classes, learner.network.width)
    weight = next(p.detach() for p in learner.network.head.parameters() if p.shape == shape)
    with torch.no_grad():
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
