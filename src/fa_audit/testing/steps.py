"""Checks of steps of learning: the reported credits are those that train, and the engine's work is
left to it.
"""

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
from fa_audit.core.vectors import cosine
from fa_audit.methods.bp import BP
from fa_audit.networks.network import Network
from fa_audit.networks.trace import trace, untouched
from fa_audit.testing.credits import saturate, topmost_cosine
from fa_audit.testing.findings import differing, expect, expect_finite, expect_none, expect_same
from fa_audit.testing.subject import DEPTH, HELD_OUT, Subject, credits_of, named
from fa_audit.training.learner import RMS_FLOOR, Learner, build, learn, teaching_signal
from fa_audit.training.optimiser import Optimiser

ROUNDING = 1e-3  # relative deviation of gradients that are the same but for the order of sums
LEAST_COSINE = 0.5  # of the gradients of an objective with those that its audited credits imply
PARALLEL = 0.999  # cosine of a sample's credits in batches of two sizes
LEAST_FILLED = 0.5  # of a credit's features, those that are ever other than 0
LARGE = {"width": 150, "depth": 9}
LARGE_BATCH, MANY_CLASSES = 128, 11  # the audits' batch
PROGRESS = (0.0, 0.25, 0.5, 0.75)  # of the epochs that are checked step by step
NARROW = (torch.float16, torch.bfloat16)
MANY = 100  # different values of credits, more than signs and the like have


def apart(subject: Subject) -> None:
    """Check that `init_state` leaves the network as it was built, and shares no tensor with it."""
    own, plain = (
        subject.build(),
        build(subject.spec(), subject.data.image_shape, subject.data.classes, BP()),
    )
    advice = "let init_state only read the network, and keep what it needs in a state of its own"
    expect_same(
        own.network.state_dict(), plain.network.state_dict(), "init_state changing {}", advice
    )
    fixed = [name for name, p in own.network.named_parameters() if not p.requires_grad]
    expect_none(
        fixed,
        "init_state switching off the gradients of {}",
        "none",
        "give credits of zeros instead",
    )
    pairs = zip(own.network.named_modules(), plain.network.named_modules(), strict=True)
    marked = [
        name or "the network" for (name, one), (_, other) in pairs if _marks(one) != _marks(other)
    ]
    expect_none(marked, "hooks or attributes that init_state left on {}", "none", advice)
    memory = {t.untyped_storage().data_ptr() for t in own.network.state_dict().values()}
    shared = [
        name
        for name, t in own.state.state_dict().items()
        if t.untyped_storage().data_ptr() in memory
    ]
    expect_none(shared, "{} of the state sharing memory with the network", "copies", advice)


def _marks(module: nn.Module) -> tuple[Any, ...]:
    """Return the names of a module's attributes, and how many hooks it and its parameters have."""
    hooks = [len(value) for name, value in vars(module).items() if "hooks" in name and value]
    on_parameters = [bool(p._backward_hooks) for p in module.parameters(recurse=False)]
    return type(module), sorted(vars(module)), hooks, on_parameters


def fresh(subject: Subject) -> None:
    """Check that every credit follows `init_state`'s generator, if one does or should, except at
    the top.
    """
    credits, declared = [], subject.method.random_feedback
    for seed in (1, 2):
        learner = subject.build()
        learner = replace(
            learner, state=subject.method.init_state(learner.network, generator(seed, "feedback"))
        )
        learner.method.begin_epoch(learner.state, 0.0)
        credits.append((named(credits_of(learner, *subject.batch(8))), learner.state.state_dict()))
    (first, one), (second, other) = credits
    found, advice = (
        f"the same {len(one)} tensors in the state",
        "draw from init_state's generator, for every layer",
    )
    alike = declared and one and not differing(one, other)
    expect(
        not alike, f"{found} from two generators", "others", f"{advice}, or drop random_feedback"
    )
    names = [name for name, a in first.items() if a.any()]
    same = [name for name in names if torch.equal(first[name], second[name])]
    fixed = (
        [name for name in same if name not in names[-1 if declared else -len(same) :]]
        if same != names
        else []
    )
    advice = f"{advice}; only at the top can the true gradient be known"
    expect_none(
        fixed, "the same credit of {} with other feedback", "another, as of other layers", advice
    )


def trains(subject: Subject) -> None:
    """Check in every step of a short training that credits in evaluation mode imply the gradients
    that are learned.

    The gradients that they imply are computed on a network of its own that no method has touched:
    the head's from the cross-entropy, a block's from ``mean_B <f_l, r(a_l)>``. Where an objective
    is learned instead, they need to point the same way only, in the parts that it reaches.
    """
    learner = subject.build(lr=2e-3)
    plain = build(subject.spec(), subject.data.image_shape, subject.data.classes, BP()).network
    optimiser, randomness = learner.optimiser(), generator(subject.seed, "method")
    for progress, (x, labels) in zip(PROGRESS * 2, _minibatches(subject, 8), strict=True):
        learner.method.begin_epoch(learner.state, progress)
        _check_step(learner, plain, optimiser, x, labels, randomness)
        optimiser.step()


def _minibatches(subject: Subject, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    x, labels = subject.batch(HELD_OUT)
    order = torch.randperm(HELD_OUT, generator=generator(subject.seed, "steps"))
    for step in range(count):
        rows = order.roll(16 * step)[:16]
        yield x[rows], labels[rows]


def _check_step(
    learner: Learner,
    plain: Network,
    optimiser: Optimiser,
    x: Tensor,
    labels: Tensor,
    randomness: torch.Generator,
) -> None:
    """Take the gradients of one minibatch and compare them, part by part, with those that its
    credits imply.
    """
    plain.load_state_dict(copy.deepcopy(learner.network.state_dict()))
    before = {name: p.detach().clone() for name, p in learner.network.named_parameters()}
    optimiser.zero_grad()
    with untouched(learner.network):
        learner.network.train(
            any(True for _ in plain.buffers())
        )  # BatchNorm trains on other states than those of eval
        credits = credits_of(learner, x, labels)
    expected = taught = _implied(plain, credits, x, labels)
    if own := learner.method.own_objective:
        named_parameters = dict(learner.network.named_parameters())
        slopes = torch.autograd.grad(
            credits.objective, [*named_parameters.values()], allow_unused=True
        )
        expected = {name: g for name, g in expected.items() if name.startswith("head.")}
        expected |= {
            name: g for name, g in zip(named_parameters, slopes, strict=True) if g is not None
        }
    learner.train_mode()
    learn(learner, x, labels, randomness)
    advice = "leave the network's parameters and their gradients to the engine"
    expect_same(
        before, dict(learner.network.named_parameters()), "a step changing {} by itself", advice
    )
    gradients = {
        name: p.grad for name, p in learner.network.named_parameters() if p.grad is not None
    }
    real, wanted, implied = (_by_part(each, expected) for each in (gradients, expected, taught))
    if credits.objective is not None:
        least = 0.0 if own else LEAST_COSINE
        turned = [
            f"{part} ({value:.2f})"
            for part in real
            if (value := _cosine(real[part], implied[part])) < least
        ]
        found = "cosines between the objective's gradient of {} and the one that its credit implies"
        advice = (
            f"report the credits that belong to the objective, or declare own_objective; {advice}"
        )
        expect_none(turned, found, f"at least {least}", advice)
        if not own:
            return
    away = [
        f"{part} ({value:.0%})"
        for part in real
        if (value := _distance(real[part], wanted[part])) > ROUNDING
    ]
    found = "gradients of {} away from what the reported credits and, for the head, the cross-entropy imply"
    expect_none(away, found, "the same gradients", f"report the credits that train; {advice}")


def _implied(plain: Network, credits: Any, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the gradients of every parameter that the cross-entropy and the credits imply."""
    run = trace(plain, x, local=True)
    outputs = (run.states[0], *run.residuals)
    targets = (credits.embedding, *credits.blocks)
    floor = RMS_FLOOR if credits.normalise else None
    signals = [teaching_signal(h, a, floor) for h, a in zip(outputs, targets, strict=True)]
    parameters = dict(plain.named_parameters())
    local = sum((h * signal.detach()).sum() for h, signal in zip(outputs, signals))
    total = F.cross_entropy(run.logits, labels) + local
    return dict(zip(parameters, torch.autograd.grad(total, [*parameters.values()]), strict=True))


def _by_part(gradients: dict[str, Tensor], like: dict[str, Tensor]) -> dict[str, Tensor]:
    """Join gradients to one vector for ``embed``, ``blocks.0``, ... and ``head`` each; what got
    none counts as zero.
    """
    parts: dict[str, list[Tensor]] = {}
    for name, other in like.items():
        part = ".".join(name.split(".")[: 2 if name.startswith("blocks.") else 1])
        parts.setdefault(part, []).append(gradients.get(name, torch.zeros_like(other)).flatten())
    return {part: torch.cat(vectors) for part, vectors in parts.items()}


def _cosine(one: Tensor, other: Tensor) -> float:
    """Return the mean cosine of vectors, or of rows; without any direction 1 if they are equal,
    else 0.
    """
    value = cosine(one.reshape(-1, one.shape[-1]), other.reshape(-1, other.shape[-1])).value
    return float(torch.equal(one, other)) if value is None else value


def _distance(real: Tensor, implied: Tensor) -> float:
    """Return the distance relative to the longer one."""
    size = max(real.norm(), implied.norm())
    return ((real - implied).norm() / size).item() if size else 0.0


def sizes(subject: Subject) -> None:
    """Check a wide and deep network with many classes on a large batch: finite, what trains, row by
    row, and the sign.

    A sample's credits may be of another length in a batch of another size, but not of another
    direction.
    """
    shape, learner = subject.data.image_shape, subject.build(MANY_CLASSES, **LARGE)
    randomness = generator(subject.seed, "sizes")
    x = torch.randn(LARGE_BATCH, *shape, generator=randomness)
    labels = torch.randint(MANY_CLASSES, (LARGE_BATCH,), generator=randomness)
    whole, part = (
        named(credits_of(learner, x, labels)),
        named(credits_of(learner, x[:8], labels[:8])),
    )
    where = f"at width {LARGE['width']}, {LARGE['depth']} blocks, {MANY_CLASSES} classes"
    expect_finite(whole | part, where)
    idle = []  # a few features filled in most samples and the others in none, unlike sparse credits
    for name, credit in whole.items():
        used = credit.any(dim=0)
        if 0 < used.float().mean() < LEAST_FILLED < (credit[:, used] != 0).float().mean():
            idle.append(name)
    expect_none(
        idle,
        f"zeros in most features of the credit of {{}} {where}",
        "values",
        "fill rows of any width",
    )
    part = {} if subject.method.across_samples else part
    turned = [name for name, a in part.items() if _cosine(a, whole[name][:8]) < PARALLEL]
    advice = "compute every sample's credit from its own row, by one rule for every size, or declare across_samples"
    expect_none(
        turned,
        f"another direction of the credit of {{}} in a batch of {LARGE_BATCH} than of 8",
        "one",
        advice,
    )
    plain = build(learner.spec, shape, MANY_CLASSES, BP()).network
    _check_step(learner, plain, learner.optimiser(), x, labels, randomness)
    (_, small), (name, large) = (
        topmost_cosine(subject.build(), *subject.batch(16)),
        topmost_cosine(learner, x, labels),
    )
    if small > LEAST_COSINE:  # of methods that need not learn to point first
        found = f"a mean cosine of {large:.3f} between the credit of {name} and g_L {where}, {small:.3f} in a small one"
        expect(large > LEAST_COSINE / 2, found, "one sign at every size", "check the sign")


def means(subject: Subject) -> None:
    """Check that a batch given twice has the gradients of the batch: losses are means; credits may
    declare theirs.
    """
    x, labels = subject.batch(8)
    gradients, states, credits = [], [], []
    for times in (1, 2):
        learner = subject.build()
        batch = (torch.cat([x] * times), torch.cat([labels] * times))
        credits.append(credits_of(learner, *batch))
        learn(learner, *batch, generator(subject.seed, "method"))
        gradients.append({name: p.grad for name, p in learner.network.named_parameters()})
        states.append(
            {name: p.grad for name, p in learner.state.named_parameters() if p.grad is not None}
        )
    one, two = gradients
    moved = [
        name
        for name, g in one.items()
        if g is not None and (two[name] - g).norm() > 0.02 * g.norm()
    ]
    advice = "make objectives means over the batch, and credits that are not normalised gradients of single losses"
    expect_none(
        moved, "another gradient of {} for a batch given twice", "that of the batch", advice
    )
    summed = [
        n for n, g in states[0].items() if (states[1][n] - 2 * g).norm() < (states[1][n] - g).norm()
    ]
    found = "twice the gradient of the state's {} for a batch given twice"
    expect_none(
        summed,
        found,
        "that of the batch",
        "make the auxiliary loss a mean over the batch, not a sum",
    )
    declared, long = credits[0].batch_mean, named(credits[1])
    other = 1.0 if declared else 0.5  # the ratio for credits of the other kind
    wrong = [
        name
        for name, a in named(credits[0]).items()
        if _distance(long[name][: len(a)], other * a) < ROUNDING
    ]
    found = f"credits of {{}} {'unchanged' if declared else 'halved'} in a batch given twice"
    advice = "declare it where credits are gradients of the batch-mean loss, not where they are of single losses"
    if not subject.method.end_to_end and credits[0].objective is None:
        expect_none(
            [name for name in wrong if long[name].any()],
            found,
            f"batch_mean={not declared}",
            advice,
        )


def labels(subject: Subject) -> None:
    """Check that every credit of a sample depends on its label or is zero, also where no error is
    left at the top.
    """
    learner, (x, own) = subject.copy(), subject.batch(6)
    others = [(own + step) % subject.data.classes for step in (1, 2)]
    others.append(
        torch.zeros_like(own)
    )  # other samples are alike then, which is all that a similarity knows
    found = _deaf([named(credits_of(learner, x, other)) for other in others])
    expect_none(
        found, "a credit of {} that ignores the labels", "another for another label", "use `labels`"
    )
    certain = [
        named(credits_of(saturate(learner, label), x, torch.full_like(own, label)))
        for label in (0, 1)
    ]
    left = [] if any([*one.values()][-1].any() for one in certain) else _deaf(certain)
    found = "a credit of {} that neither follows the label nor vanishes with the credit at the top"
    expect_none(
        left, found, "zero without an error", "subtract what a target or prediction is without one"
    )


def _deaf(versions: list[dict[str, Tensor]]) -> list[str]:
    """List the credits that have a sample, other than zero, that is the same in all versions."""
    first, *rest = versions
    same = {
        name: torch.stack([a == other[name] for other in rest]).all(0).all(1)
        for name, a in first.items()
    }
    return [name for name, a in first.items() if bool((a.any(dim=1) & same[name]).any())]


def stages(subject: Subject) -> None:
    """Check that blocks of a `greedy` method learn one after the other, and that a penalty moves no
    others.
    """
    learner, randomness, moved = (
        subject.build(penalty=0.01, lr=2e-3),
        generator(subject.seed, "method"),
        [],
    )
    optimiser = learner.optimiser()
    for step, batch in enumerate(_minibatches(subject, 2 * DEPTH) if subject.method.greedy else ()):
        learner.method.begin_epoch(learner.state, step / (2 * DEPTH))
        before = copy.deepcopy(learner.network.blocks)
        optimiser.zero_grad()
        learn(learner, *batch, randomness)
        optimiser.step()
        pairs = enumerate(zip(before, learner.network.blocks, strict=True))
        moved += [
            layer
            for layer, (b, a) in pairs
            if differing(dict(b.named_parameters()), dict(a.named_parameters()))
        ]
    found, advice = (
        f"blocks {moved} learning, step by step",
        "leave gradients to the stage's block, or drop greedy",
    )
    expect(moved == sorted(moved), found, "each once those before have had their turn", advice)


def precision(subject: Subject) -> None:
    """Check that nothing is computed below float32, and that credits on a float64 copy are float64
    and agree.
    """
    learner, batch = subject.build(), subject.batch(16)
    twin = replace(
        learner,
        network=copy.deepcopy(learner.network).double(),
        state=copy.deepcopy(learner.state).double(),
    )
    with _Types() as used:
        single = named(credits_of(learner, *batch))
        learn(learner, *batch, generator(subject.seed, "method"))
    narrow = sorted(str(kind) for kind in used.kinds & set(NARROW))
    advice = "compute in the type of the states, without half precision nor autocast"
    expect_none(narrow, "{} in the computation of a step", "float32", advice)
    double = named(credits_of(twin, batch[0].double(), batch[1]))
    other = [f"{name} ({a.dtype})" for name, a in double.items() if a.dtype != torch.float64]
    expect_none(other, "credits of {} in a float64 network", "float64", advice)
    many = {name: a for name, a in double.items() if len(a.unique()) > MANY}
    coarse = [
        name for name, a in many.items() if any(torch.equal(a.to(kind).to(a), a) for kind in NARROW)
    ]  # numpy's too
    expect_none(
        coarse, "credits of {} rounded to half precision", "float32 in all that is computed", advice
    )
    away = [name for name, a in double.items() if _deviation(single[name], a) > ROUNDING]
    expect_none(
        away, f"credits of {{}} more than {ROUNDING} away from those in float64", "the same", advice
    )


def _deviation(single: Tensor, double: Tensor) -> float:
    """Return the median over samples of the relative difference; a sample without credit counts as
    equal.
    """
    sizes = double.norm(dim=1)
    return ((single - double).norm(dim=1) / sizes.where(sizes > 0, 1)).median().item()


class _Types(TorchFunctionMode):
    """Collect the types of everything that torch returns."""

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
    """Check that steps of learning leave no graphs and no more and more tensors behind."""
    learner, randomness, counts = subject.build(lr=2e-3), generator(subject.seed, "method"), []
    optimiser = learner.optimiser()
    gc.freeze()  # objects from before need not be searched
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
    advice = "keep nothing of a step but detached numbers in buffers of fixed size"
    (before, _), (after, graphs) = counts
    expect(not graphs, f"{graphs} tensors with a graph kept after their step", "none", advice)
    expect(
        after <= before,
        f"{after - before} more values in memory after three more steps",
        "none",
        advice,
    )


def _new_values() -> tuple[int, int]:
    """Count the values, and the graphs, of all tensors made since ``gc.freeze`` that Python can
    reach.
    """
    gc.collect()
    tensors = [value for value in gc.get_objects() if issubclass(type(value), Tensor)]
    return sum(tensor.numel() for tensor in tensors), sum(
        tensor.grad_fn is not None for tensor in tensors
    )
