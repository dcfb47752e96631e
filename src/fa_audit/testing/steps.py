"""Checks of single steps: the reported credits train the network, and the engine does its own work."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from fa_audit.core.randomness import generator
from fa_audit.core.vectors import RMS_FLOOR, cosine
from fa_audit.methods.bp import BP
from fa_audit.methods.method import Credits
from fa_audit.networks.network import Network
from fa_audit.networks.trace import trace, untouched
from fa_audit.testing.credits import ROUNDING, cosines
from fa_audit.testing.findings import (
    differing,
    expect,
    expect_each,
    expect_finite,
    expect_none,
    expect_same,
)
from fa_audit.testing.subject import (
    DEPTH,
    HELD_OUT,
    SEED,
    Batch,
    Subject,
    credits_of,
    facts_of,
    gradients_of,
    named_credits,
)
from fa_audit.training.learner import Learner, build, learn, teaching_signal

# The least cosine of an objective's gradients with those that its credits imply.
_LEAST_COSINE = 0.5
_LARGE = {"width": 150, "depth": 9}
# As large as the audits' batch.
_LARGE_BATCH, _MANY_CLASSES = 128, 11
# The least cosine of a sample's credits in batches of two sizes.
_PARALLEL = 0.999


def apart(subject: Subject) -> None:
    """Expect that `init_state` leaves the network unchanged and shares no tensor with it. Only read
    the network there, keep copies in the state, and give credits of zeros to parts that must not
    learn.
    """
    learner = subject.build()
    changed = differing(facts_of(_plain(learner).eval()), facts_of(learner.network))
    expect_none(changed, "init_state changing {}")
    memory = {
        tensor.untyped_storage().data_ptr() for tensor in learner.network.state_dict().values()
    }
    expect_each(
        learner.state.state_dict(),
        lambda _, tensor: tensor.untyped_storage().data_ptr() not in memory,
        "{} of the state sharing memory with the network",
    )


def _plain(learner: Learner) -> Network:
    """Build the learner's network again, which no method has touched."""
    return build(learner.spec, learner.image_shape, learner.network.classes, BP()).network


def fresh(subject: Subject) -> None:
    """Expect that with random_feedback every credit depends on `init_state`'s generator. Draw from
    it for every layer, or drop random_feedback; only the topmost credit may be the true gradient.
    """
    credits, states = [], []
    for seed in (1, 2):
        learner = subject.build()
        state = subject.method.init_state(learner.network, generator(seed, "feedback"))
        learner.method.begin_epoch(state, 0.0)
        credits.append(named_credits(replace(learner, state=state), *subject.batch(8)))
        states.append(state.state_dict())
    random = subject.method.random_feedback
    alike = random and states[0] and not differing(*states)
    expect(not alike, f"the same {len(states[0])} tensors in the state from two generators")
    one, other = credits
    names = [name for name, a in one.items() if a.any()]
    fixed = [name for name in names if torch.equal(one[name], other[name])]
    if fixed != names:
        below = [name for name in fixed if name != names[-1]]
        expect_none(below, "the same credit of {} with other feedback")


def trains(subject: Subject) -> None:
    """Expect in every step of a short training that the gradients learned are those that the
    credits imply. Report the credits that train or that belong to the objective, or declare
    own_objective; leave the network's parameters and their gradients to the engine.

    The implied gradients are computed on another network, which no method has touched: the head's
    from the cross-entropy, a block's from ``mean_B <f_l, r(a_l)>``. If an objective is learned
    instead, they need only point the same way; an objective of the method's own, not against them.
    """
    learner, randomness = subject.build(lr=2e-3), subject.generator()
    for batch in _minibatches(subject, learner, 8):
        _check_step(learner, batch, randomness)


def _minibatches(subject: Subject, learner: Learner, count: int) -> Iterator[Batch]:
    """Yield the minibatches of a training in `count` epochs of one step each, and descend the
    gradients that a caller leaves on the learner.
    """
    optimiser = learner.optimiser()
    x, labels = subject.batch(HELD_OUT)
    order = torch.randperm(HELD_OUT, generator=generator(SEED, "steps")).repeat(3)
    for step, rows in enumerate(order.split(16)[:count]):
        learner.method.begin_epoch(learner.state, step / count)
        optimiser.zero_grad()
        yield x[rows], labels[rows]
        optimiser.step()


def _check_step(learner: Learner, batch: Batch, randomness: torch.Generator) -> None:
    """Compare the gradients of one minibatch, part by part, with those that its credits imply."""
    network, plain = learner.network, _plain(learner)
    plain.load_state_dict(network.state_dict())
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    with untouched(network):
        # BatchNorm trains on other states than those of evaluation mode.
        network.train(any(True for _ in plain.buffers()))
        credits = credits_of(learner, *batch)
    implied = _implied(plain, credits, *batch)
    learner.train_mode()
    learn(learner, *batch, randomness)
    expect_same(before, dict(network.named_parameters()), "a step changing {} by itself")
    found = _by_part(gradients_of(network), implied)
    for part, g in _by_part(implied, implied).items():
        if credits.objective is None or part == "head":
            distance = _distance(found[part], g)
            expect(not distance > ROUNDING, f"gradients of {part} away from what credits imply")
            continue
        least = 0.0 if learner.method.own_objective else _LEAST_COSINE
        value = cosine(found[part][None], g[None]).value
        text = f"a cosine of {value} between the objective's gradient of {part} and its credit's"
        expect(value is None or value >= least, text)


def _implied(plain: Network, credits: Credits, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the gradients of every parameter that the cross-entropy and the credits imply."""
    run = trace(plain, x, local=True)
    total = F.cross_entropy(run.logits, labels)
    floor = RMS_FLOOR if credits.normalise else None
    for h, a in zip((run.states[0], *run.residuals), credits.by_name().values(), strict=True):
        total = total + (h * teaching_signal(h, a, floor)).sum()
    gradients = torch.autograd.grad(total, [*plain.parameters()])
    return dict(zip(dict(plain.named_parameters()), gradients, strict=True))


def _by_part(gradients: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Join gradients to one vector for each of ``embed``, ``blocks.0``, ... and ``head``; a missing
    gradient is zero.
    """
    parts: dict[str, Tensor] = {}
    for name, other in like.items():
        part = ".".join(name.split(".")[: 2 if name.startswith("blocks.") else 1])
        gradient = gradients.get(name, torch.zeros_like(other)).flatten()
        parts[part] = torch.cat([parts.get(part, gradient[:0]), gradient])
    return parts


def _cosine(one: Tensor, other: Tensor) -> float:
    """Return the mean cosine of rows; without any direction 1 if they are equal, else 0."""
    value = cosine(one.flatten(0, -2), other.flatten(0, -2)).value
    return float(torch.equal(one, other)) if value is None else value


def _distance(one: Tensor, other: Tensor) -> float:
    """Return the distance of two vectors, relative to the longer one."""
    size = max(one.norm(), other.norm())
    return ((one - other).norm() / size).item() if size else 0.0


def sizes(subject: Subject) -> None:
    """Expect that `finite`, `trains` and `direction` hold for a wide and deep network with many
    classes on a large batch, where a sample's credit has the direction that it has in a small one.
    Fill rows of any width, compute every credit from its own row, and use one rule for every size.
    """
    learner, randomness = subject.build(_MANY_CLASSES, **_LARGE), generator(SEED, "sizes")
    x = torch.randn(_LARGE_BATCH, *learner.image_shape, generator=randomness)
    labels = torch.randint(_MANY_CLASSES, (_LARGE_BATCH,), generator=randomness)
    where = f" at width {_LARGE['width']}, {_LARGE['depth']} blocks, {_MANY_CLASSES} classes"
    credits = named_credits(learner, x, labels)
    expect_finite(credits, where)
    # The second half of the features: a sparse credit has other ones in every sample.
    rest = {name: a[:, a.shape[1] // 2 :] for name, a in credits.items() if a.any()}
    expect_each(rest, lambda _, a: a.any(), f"zeros in most features of the credit of {{}}{where}")
    if not subject.method.across_samples:
        small_batch = named_credits(learner, x[:8], labels[:8])
        turned = {name: _cosine(a, credits[name][:8]) for name, a in small_batch.items()}
        found = "another direction of the credit of {} in a larger batch"
        expect_each(turned, lambda _, value: value > _PARALLEL, found)
    _check_step(learner, (x, labels), randomness)
    top = cosines(learner, x, labels)[-1]
    small = cosines(subject.build(), *subject.batch(16))[-1]
    # Other methods have to learn to point first.
    found = f"a mean cosine of {top:.3f} between the topmost credit and g_L{where}"
    expect(not small > _LEAST_COSINE or top > _LEAST_COSINE / 2, found)


def means(subject: Subject) -> None:
    """Expect that doubling a batch leaves its gradients unchanged. Average objectives and auxiliary
    losses over the batch. Return gradients of single samples' losses as credits, or normalise them;
    declare batch_mean if they are gradients of the batch-mean loss.
    """
    x, labels = subject.batch(8)
    gradients, credits = [], []
    for times in (1, 2):
        learner = subject.build()
        batch = torch.cat([x] * times), torch.cat([labels] * times)
        credits.append(credits_of(learner, *batch))
        learn(learner, *batch, subject.generator())
        of_state = {f"the state's {name}": g for name, g in gradients_of(learner.state).items()}
        gradients.append(gradients_of(learner.network) | of_state)
    one, two = gradients
    # An auxiliary loss has other noise for another batch: nearer to once than to twice is enough.
    expect_each(
        one,
        lambda name, g: not (two[name] - g).norm() > (two[name] - 2 * g).norm(),
        "twice the gradient of {} for a batch given twice",
    )
    if subject.method.end_to_end or credits[0].objective is not None:
        return
    twice = credits[1].by_name()
    # The ratio that credits of the other kind have.
    factor = 1.0 if credits[0].batch_mean else 0.5
    expect_each(
        credits[0].by_name(),
        lambda name, a: not a.any() or _distance(twice[name][: len(a)], factor * a) >= ROUNDING,
        f"credits of {{}} that are {factor} times as long in a doubled batch",
    )


def stages(subject: Subject) -> None:
    """Expect that blocks of a `greedy` method learn one after another, even under a penalty. Give
    gradients to the stage's block only, or drop greedy.
    """
    if not subject.method.greedy:
        return
    learner, randomness = subject.build(penalty=0.01, lr=2e-3), subject.generator()
    moved, before = [], facts_of(learner.network.blocks)
    for batch in _minibatches(subject, learner, 2 * DEPTH):
        # What the step before has moved.
        after = facts_of(learner.network.blocks)
        moved += [name[0] for name in differing(before, after) if name[0].isdigit()]
        before = after
        learn(learner, *batch, randomness)
    expect(moved == sorted(moved), f"blocks that learn in the order {moved}")


def memory(subject: Subject) -> None:
    """Expect that steps leave no graphs and no growing number of tensors behind. Keep only detached
    numbers of a step, in buffers of fixed size.
    """
    learner, randomness, counts = subject.build(lr=2e-3), subject.generator(), []
    # Objects from before need not be searched.
    gc.freeze()
    try:
        # All in the first quarter: a later stage of a greedy method has moments of its own.
        for batch in islice(_minibatches(subject, learner, 24), 6):
            learn(learner, *batch, randomness)
            credits_of(learner, *batch)
            counts.append(_new_values())
    finally:
        gc.unfreeze()
    # The first steps make the optimiser's moments.
    (before, _), (after, graphs) = counts[2], counts[5]
    expect(not graphs, f"{graphs} tensors with a graph kept after their step")
    expect(after <= before, f"{after - before} more values in memory after three more steps")


def _new_values() -> tuple[int, int]:
    """Count the values and graphs of all reachable tensors made since ``gc.freeze``."""
    gc.collect()
    tensors = [value for value in gc.get_objects() if issubclass(type(value), Tensor)]
    graphs = sum(tensor.grad_fn is not None for tensor in tensors)
    return sum(tensor.numel() for tensor in tensors), graphs
