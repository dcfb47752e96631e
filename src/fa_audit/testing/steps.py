"""Checks of single steps: the reported credits train the network, and the engine does its own work."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fa_audit.core.randomness import generator
from fa_audit.core.vectors import RMS_FLOOR, cosine
from fa_audit.methods.bp import BP
from fa_audit.methods.method import Credits
from fa_audit.networks.network import Network
from fa_audit.networks.trace import trace, untouched
from fa_audit.testing.credits import saturate, topmost_cosine
from fa_audit.testing.findings import (
    Tensors,
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
    Batch,
    Subject,
    credits_of,
    gradients_of,
    named_credits,
)
from fa_audit.training.learner import Learner, build, learn, teaching_signal

# Gradients that are the same but for the order of sums deviate by less, relatively.
ROUNDING = 1e-3
# The least cosine of an objective's gradients with those that its credits imply.
LEAST_COSINE = 0.5
# Cosine of a sample's credits in batches of two sizes.
_PARALLEL = 0.999
# The least share of a credit's features that are ever other than 0.
_LEAST_FILLED = 0.5
LARGE = {"width": 150, "depth": 9}
# As large as the audits' batch.
_LARGE_BATCH, _MANY_CLASSES = 128, 11
# Where in a training steps are checked.
_PROGRESS = (0.0, 0.25, 0.5, 0.75)
NARROW = (torch.float16, torch.bfloat16)
# More different values than signs and the like have.
MANY = 100


def apart(subject: Subject) -> None:
    """Expect that `init_state` leaves the network unchanged and shares no tensor with it. Only read
    the network there, keep copies in the state, and give credits of zeros to parts that must not
    learn.
    """
    learner = subject.build()
    network, plain, own = learner.network, _plain(learner), learner.network.state_dict()
    expect_same(own, plain.state_dict(), "init_state changing {}")
    found = "init_state switching off the gradients of {}"
    expect_each(dict(network.named_parameters()), lambda _, p: p.requires_grad, found)
    pairs = zip(network.named_modules(), plain.modules(), strict=True)
    marked = [name or "the network" for (name, one), other in pairs if _marks(one) != _marks(other)]
    expect_none(marked, "hooks or attributes that init_state left on {}")
    memory = {tensor.untyped_storage().data_ptr() for tensor in own.values()}
    expect_each(
        learner.state.state_dict(),
        lambda _, tensor: tensor.untyped_storage().data_ptr() not in memory,
        "{} of the state sharing memory with the network",
    )


def _plain(learner: Learner) -> Network:
    """Build the learner's network again, which no method has touched."""
    return build(learner.spec, learner.image_shape, learner.network.classes, BP()).network


def _marks(module: nn.Module) -> tuple[Any, ...]:
    """Return the names of a module's attributes, and how many hooks it and its parameters have."""
    hooks = [len(value) for name, value in vars(module).items() if "hooks" in name and value]
    on_parameters = [bool(p._backward_hooks) for p in module.parameters(recurse=False)]
    return type(module), sorted(vars(module)), hooks, on_parameters


def fresh(subject: Subject) -> None:
    """Expect that with random_feedback every credit depends on `init_state`'s generator. Draw from
    it for every layer, or drop random_feedback; only the topmost credit may be the true gradient.
    """
    credits, states, declared = [], [], subject.method.random_feedback
    for seed in (1, 2):
        learner = subject.build()
        state = subject.method.init_state(learner.network, generator(seed, "feedback"))
        learner.method.begin_epoch(state, 0.0)
        credits.append(named_credits(replace(learner, state=state), *subject.batch(8)))
        states.append(state.state_dict())
    alike = declared and states[0] and not differing(*states)
    expect(not alike, f"the same {len(states[0])} tensors in the state from two generators")
    first, second = credits
    names = [name for name, a in first.items() if a.any()]
    same = [name for name in names if torch.equal(first[name], second[name])]
    allowed = names[-1:] if declared else names[len(names) - len(same) :]
    if same != names:
        fixed = [name for name in same if name not in allowed]
        expect_none(fixed, "the same credit of {} with other feedback")


def trains(subject: Subject) -> None:
    """Expect in every step of a short training that the gradients learned are those that the
    credits imply. Report the credits that train or that belong to the objective, or declare
    own_objective; leave the network's parameters and their gradients to the engine.

    The implied gradients are computed on another network, which no method has touched: the head's
    from the cross-entropy, a block's from ``mean_B <f_l, r(a_l)>``. If an objective is learned
    instead, they need only point the same way, in the parts that it reaches.
    """
    learner, randomness = subject.build(lr=2e-3), subject.generator()
    optimiser = learner.optimiser()
    for progress, batch in zip(_PROGRESS * 2, _minibatches(subject, 8), strict=True):
        learner.method.begin_epoch(learner.state, progress)
        optimiser.zero_grad()
        _check_step(learner, batch, randomness)
        optimiser.step()


def _minibatches(subject: Subject, count: int) -> Iterator[Batch]:
    x, labels = subject.batch(HELD_OUT)
    order = torch.randperm(HELD_OUT, generator=generator(subject.seed, "steps"))
    for step in range(count):
        rows = order.roll(16 * step)[:16]
        yield x[rows], labels[rows]


def _check_step(learner: Learner, batch: Batch, randomness: torch.Generator) -> None:
    """Compare the gradients of one minibatch, part by part, with those that its credits imply."""
    network, own = learner.network, learner.method.own_objective
    plain = _plain(learner)
    plain.load_state_dict(network.state_dict())
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    with untouched(network):
        # BatchNorm trains on other states than those of evaluation mode.
        network.train(any(True for _ in plain.buffers()))
        credits = credits_of(learner, *batch)
    expected = taught = _implied(plain, credits, *batch)
    if own:
        slopes = torch.autograd.grad(credits.objective, [*network.parameters()], allow_unused=True)
        expected = {name: g for name, g in taught.items() if name.startswith("head.")}
        expected |= {name: g for name, g in zip(before, slopes, strict=True) if g is not None}
    learner.train_mode()
    learn(learner, *batch, randomness)
    expect_same(before, dict(network.named_parameters()), "a step changing {} by itself")
    real = _by_part(gradients_of(network), expected)
    if credits.objective is not None:
        least, implied = 0.0 if own else LEAST_COSINE, _by_part(taught, expected)
        found = f"a cosine below {least} of the objective's gradient of {{}} with its credit's"
        expect_each(real, lambda part, g: not _cosine(g, implied[part]) < least, found)
        if not own:
            return
    wanted = _by_part(expected, expected)
    found = "gradients of {} away from what the reported credits imply"
    expect_each(real, lambda part, g: not _distance(g, wanted[part]) > ROUNDING, found)


def _implied(plain: Network, credits: Credits, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the gradients of every parameter that the cross-entropy and the credits imply."""
    run = trace(plain, x, local=True)
    total = F.cross_entropy(run.logits, labels)
    floor = RMS_FLOOR if credits.normalise else None
    for h, a in zip((run.states[0], *run.residuals), credits.by_name().values(), strict=True):
        total = total + (h * teaching_signal(h, a, floor).detach()).sum()
    gradients = torch.autograd.grad(total, [*plain.parameters()])
    return dict(zip(dict(plain.named_parameters()), gradients, strict=True))


def _by_part(gradients: Tensors, like: Tensors) -> dict[str, Tensor]:
    """Join gradients to one vector for each of ``embed``, ``blocks.0``, ... and ``head``; a missing
    gradient is zero.
    """
    parts: dict[str, list[Tensor]] = {}
    for name, other in like.items():
        part = ".".join(name.split(".")[: 2 if name.startswith("blocks.") else 1])
        parts.setdefault(part, []).append(gradients.get(name, torch.zeros_like(other)).flatten())
    return {part: torch.cat(vectors) for part, vectors in parts.items()}


def _cosine(one: Tensor, other: Tensor) -> float:
    """Return the mean cosine of vectors or rows; if one is zero, 1 for equal ones and 0 for others."""
    value = cosine(one.reshape(-1, one.shape[-1]), other.reshape(-1, other.shape[-1])).value
    return float(torch.equal(one, other)) if value is None else value


def _distance(real: Tensor, implied: Tensor) -> float:
    """Return the distance of two vectors, relative to the longer one."""
    size = max(real.norm(), implied.norm())
    return ((real - implied).norm() / size).item() if size else 0.0


def sizes(subject: Subject) -> None:
    """Expect that `finite`, `trains`, `rows` and `direction` hold for a wide and deep network with
    many classes on a large batch. Use one rule for every size, and compute every sample's credit
    from its own row, or declare across_samples.

    In a larger batch a sample's credits may have another length, but no other direction.
    """
    learner, randomness = subject.build(_MANY_CLASSES, **LARGE), generator(subject.seed, "sizes")
    x = torch.randn(_LARGE_BATCH, *learner.image_shape, generator=randomness)
    labels = torch.randint(_MANY_CLASSES, (_LARGE_BATCH,), generator=randomness)
    whole, part = named_credits(learner, x, labels), named_credits(learner, x[:8], labels[:8])
    where = f" at width {LARGE['width']}, {LARGE['depth']} blocks, {_MANY_CLASSES} classes"
    expect_finite(whole | part, where)
    # A few features filled in most samples and the others in none, unlike sparse credits.
    idle = []
    for name, credit in whole.items():
        used = credit.any(dim=0)
        if 0 < used.float().mean() < _LEAST_FILLED < (credit[:, used] != 0).float().mean():
            idle.append(name)
    expect_none(idle, f"zeros in most features of the credit of {{}}{where}")
    if not subject.method.across_samples:
        found = "another direction of the credit of {} in a larger batch"
        expect_each(part, lambda name, a: not _cosine(a, whole[name][:8]) < _PARALLEL, found)
    _check_step(learner, (x, labels), randomness)
    small = topmost_cosine(subject.build(), *subject.batch(16))
    # Other methods have to learn to point first.
    if small > LEAST_COSINE:
        large = topmost_cosine(learner, x, labels)
        found = f"a mean cosine of {large:.3f} between the topmost credit and g_L{where}"
        expect(large > LEAST_COSINE / 2, f"{found}, {small:.3f} in a small one")


def means(subject: Subject) -> None:
    """Expect that doubling a batch leaves its gradients unchanged. Average objectives and auxiliary
    losses over the batch. Return gradients of single samples' losses as credits, or normalise them;
    declare batch_mean if they are gradients of the batch-mean loss.
    """
    x, labels = subject.batch(8)
    gradients, of_state, credits = [], [], []
    for times in (1, 2):
        learner, batch = subject.build(), (torch.cat([x] * times), torch.cat([labels] * times))
        credits.append(credits_of(learner, *batch))
        learn(learner, *batch, subject.generator())
        gradients.append(gradients_of(learner.network))
        of_state.append(gradients_of(learner.state))
    one, two = gradients
    found = "another gradient of {} for a batch given twice"
    expect_each(one, lambda name, g: not (two[name] - g).norm() > 0.02 * g.norm(), found)
    once, twice = of_state
    expect_each(
        once,
        lambda name, g: not (twice[name] - 2 * g).norm() < (twice[name] - g).norm(),
        "twice the gradient of the state's {} for a batch given twice",
    )
    if subject.method.end_to_end or credits[0].objective is not None:
        return
    declared, long = credits[0].batch_mean, credits[1].by_name()
    # The ratio that credits of the other kind have.
    factor = 1.0 if declared else 0.5

    def own_kind(name: str, a: Tensor) -> bool:
        return not (long[name].any() and _distance(long[name][: len(a)], factor * a) < ROUNDING)

    found = f"credits of {{}} times {factor} in a batch given twice"
    expect_each(credits[0].by_name(), own_kind, found)


def labels(subject: Subject) -> None:
    """Expect that every credit depends on the sample's label or is zero, even if no error is left
    at the top. Use `labels`, and subtract the target or prediction that has no error.
    """
    learner, (x, own) = subject.copy(), subject.batch(6)
    others = [(own + step) % subject.data.classes for step in (1, 2)]
    # The last: all samples are alike, which is all that a similarity knows.
    others.append(torch.zeros_like(own))
    versions = [named_credits(learner, x, given) for given in others]
    expect_none(_deaf(versions), "a credit of {} that ignores the labels")
    certain = []
    for label in (0, 1):
        saturate(learner, label)
        certain.append(named_credits(learner, x, torch.full_like(own, label)))
    if not any([*one.values()][-1].any() for one in certain):
        found = "a credit of {} that neither follows the label nor vanishes with the one at the top"
        expect_none(_deaf(certain), found)


def _deaf(versions: list[dict[str, Tensor]]) -> list[str]:
    """List the credits in which a non-zero sample is the same in all versions."""
    first, *rest = versions
    names = []
    for name, a in first.items():
        same = torch.stack([a == other[name] for other in rest]).all(0).all(1)
        if (a.any(dim=1) & same).any():
            names.append(name)
    return names


def stages(subject: Subject) -> None:
    """Expect that blocks of a `greedy` method learn one after another, even under a penalty. Give
    gradients to the stage's block only, or drop greedy.
    """
    learner, randomness, moved = subject.build(penalty=0.01, lr=2e-3), subject.generator(), []
    optimiser = learner.optimiser()
    for step, batch in enumerate(_minibatches(subject, 2 * DEPTH) if subject.method.greedy else ()):
        learner.method.begin_epoch(learner.state, step / (2 * DEPTH))
        before = copy.deepcopy(learner.network.blocks)
        optimiser.zero_grad()
        learn(learner, *batch, randomness)
        optimiser.step()
        for layer, (old, new) in enumerate(zip(before, learner.network.blocks, strict=True)):
            if differing(dict(old.named_parameters()), dict(new.named_parameters())):
                moved.append(layer)
    expect(moved == sorted(moved), f"blocks {moved} learning, step by step")


def precision(subject: Subject) -> None:
    """Expect no computation below float32, and credits of a float64 copy in float64 that agree.
    Compute in the type of the states, without half precision or autocast.
    """
    learner, (x, labels) = subject.build(), subject.batch(16)
    twin = copy.deepcopy(learner)
    twin.network.double()
    twin.state.double()
    with _Types() as used:
        single = named_credits(learner, x, labels)
        learn(learner, x, labels, subject.generator())
    narrow = [str(kind) for kind in NARROW if kind in used.kinds]
    expect_none(narrow, "{} in the computation of a step")
    double = named_credits(twin, x.double(), labels)
    found = "credits of {} that are not of float64 in a float64 network"
    expect_each(double, lambda _, a: a.dtype == torch.float64, found)

    def fine(_: str, a: Tensor) -> bool:
        # numpy computes in half precision, too, where torch does not see it.
        rounded = any(torch.equal(a.to(kind).to(a), a) for kind in NARROW)
        return not rounded or len(a.unique()) <= MANY

    def near(name: str, a: Tensor) -> bool:
        length = a.norm(dim=1)
        deviations = (single[name] - a).norm(dim=1) / length.where(length > 0, 1)
        return not deviations.median() > ROUNDING

    expect_each(double, fine, "credits of {} rounded to half precision")
    expect_each(double, near, f"credits of {{}} more than {ROUNDING} away from those in float64")


class _Types(TorchFunctionMode):
    """Record the types of all tensors that torch returns."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: set[torch.dtype] = set()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        values = result if isinstance(result, list | tuple) else (result,)
        self.kinds |= {value.dtype for value in values if isinstance(value, Tensor)}
        return result


def memory(subject: Subject) -> None:
    """Expect that steps leave no graphs and no growing number of tensors behind. Keep only detached
    numbers of a step, in buffers of fixed size.
    """
    learner, randomness, counts = subject.build(lr=2e-3), subject.generator(), []
    optimiser = learner.optimiser()
    # Objects from before need not be searched.
    gc.freeze()
    try:
        for step, batch in enumerate(_minibatches(subject, 6)):
            optimiser.zero_grad()
            learn(learner, *batch, randomness)
            credits_of(learner, *batch)
            optimiser.step()
            del batch
            if step in (2, 5):
                counts.append(_new_values())
    finally:
        gc.unfreeze()
    (before, _), (after, graphs) = counts
    expect(not graphs, f"{graphs} tensors with a graph kept after their step")
    expect(after <= before, f"{after - before} more values in memory after three more steps")


def _new_values() -> tuple[int, int]:
    """Count the values and graphs of all reachable tensors made since ``gc.freeze``."""
    gc.collect()
    tensors = [value for value in gc.get_objects() if issubclass(type(value), Tensor)]
    graphs = sum(tensor.grad_fn is not None for tensor in tensors)
    return sum(tensor.numel() for tensor in tensors), graphs
