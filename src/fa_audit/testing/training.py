"""Checks of trainings: what learns, what stays frozen, what survives a file or an interruption, and
where it fits.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import pickle
import subprocess
import sys
import tempfile
import typing
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.core.randomness import generator, seeded, stream_seed
from fa_audit.core.vectors import cosine
from fa_audit.methods import METHODS
from fa_audit.methods.info import MethodInfo, of_class
from fa_audit.methods.method import Method
from fa_audit.methods.transport import block_weights
from fa_audit.networks import ARCHITECTURES
from fa_audit.networks.trace import reference, trace
from fa_audit.testing import steps
from fa_audit.testing.credits import (
    GENTLE,
    direction,
    downhill,
    purity,
    rows,
    shapes,
    topmost_cosine,
)
from fa_audit.testing.findings import (
    Finding,
    differing,
    expect,
    expect_finite,
    expect_none,
    expect_same,
    in_one_line,
)
from fa_audit.testing.subject import CLASSES, DEPTH, HELD_OUT, Subject, credits_of, named
from fa_audit.training.checkpoint import (
    learner_tensors,
    load_checkpoint,
    load_learner_tensors,
    save_checkpoint,
)
from fa_audit.training.learner import Learner, residual_energy
from fa_audit.training.loop import train
from fa_audit.training.optimiser import Optimiser
from fa_audit.training.resume import Resume

FREED = {
    "across_samples": (rows, steps.sizes),
    "own_objective": (steps.trains, direction, downhill),
}  # by a trait
WELL_ABOVE_CHANCE = 0.6  # chance is 1/6
EXACT = 0.999  # cosine of credits that are the gradients
AGAINST = (
    -0.25
)  # cosine of a matrix of hundreds of entries with another, which it has not by chance


def process(subject: Subject) -> None:
    """Check that a training in another process, with other hashes, ends with the same bits."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.suppress(pickle.PicklingError, AttributeError, TypeError),
    ):
        given, path = pickle.dumps(replace(subject, runs={})), Path(folder) / "tensors"
        changes = {
            "PYTHONHASHSEED": f"{os.getpid()}",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [
            sys.executable,
            "-c",
            f"from {__name__} import train_here as train; train({str(path)!r})",
        ]
        ended = subprocess.run(command, env=os.environ | changes, input=given, capture_output=True)
        if b"Traceback" in ended.stderr:  # which other checks name
            return
        found, advice = (
            f"a process that a training ended, status {ended.returncode}",
            "leave no process from a method",
        )
        expect(path.exists(), found, "its end", f"{advice}, as sys.exit and os._exit do")
        advice = "derive nothing from hash(), id(), the process, the clock, or Python's or numpy's random numbers"
        expect_same(
            learner_tensors(subject.trained().learner),
            torch.load(path),
            "other {} in another process",
            advice,
        )


def train_here(path: str) -> None:
    """Train the subject on the standard input as the first check of a suite does, and save its
    tensors.
    """
    subject = pickle.load(sys.stdin.buffer)
    torch.set_num_threads(1)
    with seeded(stream_seed(subject.seed, "checks")):
        torch.save(learner_tensors(subject.trained().learner), path)


def learns(subject: Subject) -> None:
    """Check that held-out accuracy ends far above chance, if credits have a sign, but not on random
    targets.
    """
    signed = not math.isnan(topmost_cosine(subject.copy(**GENTLE), *subject.batch(HELD_OUT))[1])
    for changes, reaches in (
        ({}, True),
        ({"penalty": 0.01}, True),
        ({"random_targets": True}, False),
    ):
        accuracy = subject.trained(epochs=6, terminal_norm=False, **changes).accuracy
        bound = f"{'at least' if reaches else 'less than'} {WELL_ABOVE_CHANCE} (chance is {1 / CLASSES:.2f})"
        advice = (
            "check scale and sign of the credits, and that nothing but `labels` gives the target"
        )
        found = f"accuracy {accuracy:.2f} on separable classes with {changes or 'no options'}"
        expect(
            (accuracy >= WELL_ABOVE_CHANCE) == reaches or (reaches and not signed),
            found,
            bound,
            advice,
        )


def moves(subject: Subject) -> None:
    """Check that training moves every parameter of network and state, except where a credit is zero
    at the bottom.

    Feedback that begins with "learned" must change, and must not end against a weight of the
    blocks.
    """
    epochs = 2 * (DEPTH + 1)  # some for every layer, where layers learn one after the other
    moved, credits = (
        _moved(subject, epochs=epochs),
        credits_of(subject.copy(epochs=epochs), *subject.batch(8)),
    )
    idle = ("embed.",) * (not credits.embedding.any()) + ("blocks.0.",) * (
        not credits.blocks[0].any()
    )
    still = [
        n for n in subject.build().network.state_dict() if not n.startswith(idle) and n not in moved
    ]
    expect_none(
        still, "{} unmoved by training", "every parameter moved", "give every block a credit"
    )
    begun, ended = (made.state for made in (subject.build(), subject.copy(epochs=epochs)))
    learnt = {name for name, parameter in begun.named_parameters() if parameter.requires_grad}
    idle_state = learnt - set(
        differing(dict(begun.named_parameters()), dict(ended.named_parameters()))
    )
    advice = "train it by auxiliary_loss or an objective, or make it a buffer"
    expect_none(
        sorted(idle_state), "{} of the state unmoved by training", "every parameter moved", advice
    )
    _learns_feedback(subject, begun, subject.copy(epochs=epochs))


def _learns_feedback(subject: Subject, begun: nn.Module, learner: Learner) -> None:
    """Check that feedback declared as learned changes, and does not end against a weight of its
    shape.
    """
    said = of_class(type(subject.method)).feedback
    if not said.startswith("learned"):
        return
    found = f"no change of the state by training, and feedback={said!r}"
    expect(
        bool(differing(begun.state_dict(), learner.state.state_dict())),
        found,
        "some",
        "let update_state learn it",
    )
    weights = [
        (name, turned)
        for name, weight in block_weights(learner.network)
        for turned in (weight, weight.mT)
    ]
    against = [
        f"{name} against {weight}"
        for name, tensor in learner.state.state_dict(keep_vars=True).items()
        for weight, partner in weights
        if partner.shape == tensor.shape
        and _cosine(tensor, partner) < AGAINST
        and _carries(subject, learner, tensor)
    ]
    advice = "check the sign of its update, and keep feedback with the sign of its weight"
    expect_none(
        against,
        f"learned feedback {{}} (cosine below {AGAINST})",
        "feedback that turns towards it",
        advice,
    )


def _cosine(one: Tensor, other: Tensor) -> float:
    return F.cosine_similarity(one.detach().flatten(), other.detach().flatten(), dim=0).item()


def _carries(subject: Subject, learner: Learner, tensor: Tensor) -> bool:
    """Return whether credits are others without a tensor of the state, which moments of gradients
    are not.
    """
    kept, batch = tensor.detach().clone(), subject.batch(8)
    credits = named(credits_of(learner, *batch))
    tensor.data.zero_()
    without = named(credits_of(learner, *batch))
    tensor.data.copy_(kept)
    return bool(differing(credits, without))


def frozen(subject: Subject) -> None:
    """Check that frozen blocks keep every bit, as trainings do themselves, while the rest moves as
    without them.
    """
    for count in (1, DEPTH):
        moved = _moved(subject, frozen_blocks=count)
        fixed = tuple(f"blocks.{layer}." for layer in range(count))
        still = [n for n in _moved(subject) if not n.startswith(fixed) and n not in moved]
        expect_none(
            still,
            f"{{}} unmoved with frozen_blocks={count}",
            "the rest trained",
            "give them credits",
        )


def _moved(subject: Subject, **changes: Any) -> list[str]:
    """List the network's parameters and buffers that training has changed."""
    before, after = subject.build(**changes), subject.trained(**changes).learner
    return differing(before.network.state_dict(), after.network.state_dict())


def options(subject: Subject) -> None:
    """Check that training ends with finite numbers under every combination of options."""
    some = {"penalty": 0.01, "frozen_blocks": 2}
    shallow, noise = {"shallow": True}, {"random_targets": True}
    for changes in (some, some | noise, shallow, shallow | noise):
        tensors = learner_tensors(subject.trained(batch_size=48, **changes).learner)
        expect_finite(tensors, "with " + " and ".join(changes), "mind networks without blocks")


def penalty(subject: Subject) -> None:
    """Check that a large residual penalty leaves less energy in the residuals."""
    x, _ = subject.batch(HELD_OUT)
    networks = [subject.trained(**changes).learner.network for changes in ({}, {"penalty": 10.0})]
    free, penalised = (
        residual_energy(trace(network, x, local=True).residuals).item() for network in networks
    )
    found = f"residual energy {penalised:.3g} with penalty 10 and {free:.3g} without"
    expect(
        penalised < free,
        found,
        "less with the penalty",
        "leave the gradients of the network to the engine",
    )


def auxiliary(subject: Subject) -> None:
    """Check that the auxiliary loss is a scalar that trains the state and leaves no gradient on the
    network.
    """
    learner, (x, labels) = subject.copy(), subject.batch(16)
    run = learner.trace(x)
    randomness = generator(subject.seed, "method")
    loss = learner.method.auxiliary_loss(learner.network, run, labels, learner.state, randomness)
    own = [p for p in learner.state.parameters() if p.requires_grad]
    if loss is not None:
        expect(
            loss.dim() == 0,
            f"an auxiliary loss of shape {tuple(loss.shape)}",
            "a scalar",
            "return a mean",
        )
        loss.backward(inputs=own)
        reached = any(p.grad is not None and p.grad.any() for p in own)
        expect(
            reached,
            "no gradient on the state",
            "some",
            "let the auxiliary loss depend on the state's parameters",
        )
    pushed = [name for name, p in learner.network.named_parameters() if p.grad is not None]
    advice = "return the loss without calling backward, and keep the network's parameters out of the state"
    expect_none(pushed, "a gradient on {}", "none on the network", advice)


def saved(subject: Subject) -> None:
    """Check that credits depend on parameters and buffers alone: copied or read back they give the
    same bits.
    """
    original, batch = subject.trained().learner, subject.batch(8)
    credits = named(credits_of(original, *batch))
    advice = "keep it in parameters or persistent buffers of the state, not in attributes nor in the method"
    for how, other in _copies(subject, original):
        expect_same(
            credits, named(credits_of(other, *batch)), f"other credits of {{}} once {how}", advice
        )
        found = asdict(other.method)
        expect(
            found == asdict(original.method),
            f"constants {found} once {how}",
            "those before",
            "use plain scalars",
        )


def _copies(subject: Subject, original: Learner) -> Iterator[tuple[str, Learner]]:
    """Yield copies of a learner, by how they were made."""
    other = subject.build(seed=subject.seed + 1)  # which began with other random draws
    load_learner_tensors(other, learner_tensors(original))
    yield "copied into another learner", other
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(original, path := Path(folder) / "checkpoint")
        other = load_checkpoint(path, method=None if subject.name in METHODS else subject.fresh())
    yield "saved and loaded", other


def resume(subject: Subject) -> None:
    """Check that a training interrupted after its first epoch and resumed ends with the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resume"
        with contextlib.suppress(Interrupted):
            train(
                subject.spec(),
                subject.data,
                resume=Interrupting(path, "same"),
                method=subject.fresh(),
            )
        again = train(
            subject.spec(), subject.data, resume=Resume(path, "same"), method=subject.fresh()
        )
    both = map(learner_tensors, (subject.trained().learner, again.learner))
    advice = "keep what changes during training in parameters or persistent buffers of the state"
    expect_same(*both, "other {} after an interruption", advice)


class Interrupted(Exception):
    """Interrupt a training."""


class Interrupting(Resume):
    """Interrupt a training as soon as its first epoch is saved."""

    def save(self, learner: Learner, optimiser: Optimiser, progress: dict[str, Any]) -> None:
        super().save(learner, optimiser, progress)
        raise Interrupted


def architectures(subject: Subject) -> None:
    """Check credits, sign and steps of learning on every architecture but those that raise
    NotImplementedError.
    """
    for name in ARCHITECTURES:
        try:
            if name != subject.architecture:
                own = replace(subject, architecture=name, runs={})
                _check_architecture(own, exact=_least_cosine(subject) > EXACT)
        except Exception as error:
            if not isinstance(error.__cause__ or error, NotImplementedError):
                raise Finding(f"with {name}, {in_one_line(error, subject.method)}") from error


def _check_architecture(subject: Subject, *, exact: bool) -> None:
    checks = [shapes, purity, rows, steps.labels, direction]
    if (
        not subject.method.end_to_end
        and credits_of(subject.build(), *subject.batch(8)).objective is None
    ):
        checks.append(steps.trains)  # others' tokens and positions have gradients of their own
    for check in checks:
        check(subject)
    found = f"a cosine of {(least := _least_cosine(subject)):.4f} between a credit and the gradient, elsewhere 1"
    expect(not exact or least > EXACT, found, "1", "read gradients with network.read_gradient")


def _least_cosine(subject: Subject) -> float:
    """Return the smallest mean cosine of a credit with the gradient at its own state."""
    learner, batch = subject.copy(), subject.batch(HELD_OUT)
    pairs = zip(
        named(credits_of(learner, *batch)).values(),
        reference(learner.network, *batch).gradients,
        strict=True,
    )
    return min(cosine(a, g).value or 0.0 for a, g in pairs)


def declarations(subject: Subject) -> None:
    """Check the type of what the method states of itself, and that a checkpoint keeps its
    constants.
    """
    kind = type(subject.method)
    flags = typing.get_type_hints(Method)
    stated = vars(of_class(kind)) | {name: getattr(kind, name) for name in flags}
    expected = {name: type(value) for name, value in vars(MethodInfo()).items()} | dict.fromkeys(
        flags, bool
    )
    wrong = [
        f"{name}={value!r}" for name, value in stated.items() if not _is(expected[name], value)
    ]
    expect_none(
        wrong,
        "{} in the class",
        "texts, true or false, and costs >= 0, as in MethodInfo",
        "correct it",
    )
    constants = {constant.name for constant in fields(kind)}
    declared = {
        name for name, of in inspect.get_annotations(kind).items() if "ClassVar" not in str(of)
    }
    lost = sorted(declared - constants)
    expect_none(
        lost, "{} that no checkpoint keeps", "constants", "decorate with @dataclass(frozen=True)"
    )


def traits(subject: Subject) -> None:
    """Check that a method needs the traits that free it of checks: without one it would fail one of
    them.
    """
    kind = type(subject.method)
    for name in (name for name in FREED if getattr(kind, name)):
        strict = type(kind.__name__, (kind,), {name: False})(**vars(subject.method))
        try:
            for check in FREED[name]:
                check(replace(subject, method=strict))
        except Finding:
            continue
        raise Finding(
            f"found {name} declared without need; expected none; drop it, and more is checked."
        )


def _is(kind: type, value: Any) -> bool:
    """Return whether a value is of its kind, and a finite cost >= 0."""
    if kind in (bool, str, dict):
        return isinstance(value, kind)
    return isinstance(value, int | kind) and not isinstance(value, bool) and 0 <= value < math.inf
