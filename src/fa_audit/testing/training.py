"""Checks of trainings: what learns, what stays frozen, what survives a file or an interruption, and where it fits."""

from __future__ import annotations

import contextlib
import inspect
import math
import tempfile
import typing
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from fa_audit.core.errors import AuditError
from fa_audit.core.randomness import generator
from fa_audit.core.source import class_literals
from fa_audit.data.dataset import Dataset, evaluation_batches
from fa_audit.methods import METHODS
from fa_audit.methods.method import Method
from fa_audit.networks import ARCHITECTURES, architecture_options
from fa_audit.networks.trace import trace
from fa_audit.testing.credits import changed_by_credits
from fa_audit.testing.findings import Finding, differing, expect, expect_finite, expect_none, expect_same, in_one_line
from fa_audit.testing.subject import CLASSES, DEPTH, HELD_OUT, Subject, clouds, credits_of, named
from fa_audit.training.checkpoint import learner_tensors, load_checkpoint, load_learner_tensors, save_checkpoint
from fa_audit.training.learner import Learner, residual_energy
from fa_audit.training.loop import train
from fa_audit.training.optimiser import Optimiser
from fa_audit.training.resume import Resume

WELL_ABOVE_CHANCE = 0.6  # chance is 1/6
SMALL = {"width": 16, "depth": 2}  # registered architectures are made no larger


def learns(subject: Subject) -> None:
    """Check that held-out accuracy ends far above chance, with the penalty too, but not on random targets."""
    for changes, reaches in (({}, True), ({"penalty": 0.01}, True), ({"random_targets": True}, False)):
        accuracy = subject.trained(epochs=6, terminal_norm=False, **changes).accuracy
        bound = f"{'at least' if reaches else 'less than'} {WELL_ABOVE_CHANCE} (chance is {1 / CLASSES:.2f})"
        advice = "check scale and sign of the credits, and that `labels` and nothing else tells the target"
        found = f"accuracy {accuracy:.2f} on separable classes with {changes or 'no options'}"
        expect((accuracy >= WELL_ABOVE_CHANCE) == reaches, found, bound, advice)


def moves(subject: Subject) -> None:
    """Check that training moves every parameter of embedding, blocks and head."""
    moved = _moved(subject)
    still = [name for name, _ in subject.build().network.named_parameters() if name not in moved]
    expect_none(still, "{} unmoved by training", "every parameter moved", "give every block a credit")


def frozen(subject: Subject) -> None:
    """Check that frozen blocks keep every bit and collect no gradient while everything else moves."""
    for count in (1, DEPTH):
        network, moved = subject.trained(frozen_blocks=count).learner.network, _moved(subject, frozen_blocks=count)
        fixed = tuple(f"blocks.{layer}." for layer in range(count))
        advice = "leave the parameters of the network to the engine"
        thawed = [name for name in moved if name.startswith(fixed)]
        expect_none(thawed, f"{{}} moved with frozen_blocks={count}", "every bit kept", advice)
        free = [p for p in network.blocks[:count].parameters() if p.requires_grad or p.grad is not None]
        expect(not free, f"{len(free)} frozen parameters with gradients switched on", "none", advice)
        still = [n for n, _ in network.named_parameters() if not n.startswith(fixed) and n not in moved]
        expect_none(still, f"{{}} unmoved with frozen_blocks={count}", "the rest trained", "give them credits")


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
    free, penalised = (_energy(subject, changes) for changes in ({}, {"penalty": 10.0}))
    found = f"residual energy {penalised:.3g} with penalty 10 and {free:.3g} without"
    expect(penalised < free, found, "less with the penalty", "leave the gradients of the network to the engine")


def _energy(subject: Subject, changes: dict[str, Any]) -> float:
    network, (x, _) = subject.trained(**changes).learner.network, subject.batch(HELD_OUT)
    return residual_energy(trace(network, x, local=True).residuals).item()


def auxiliary(subject: Subject) -> None:
    """Check that the auxiliary loss is a scalar that trains the state and leaves no gradient on the network."""
    learner, (x, labels) = subject.copy(), subject.batch(16)
    run = trace(learner.network, x, local=not learner.method.end_to_end)
    randomness = generator(subject.seed, "method")
    loss = learner.method.auxiliary_loss(learner.network, run, labels, learner.state, randomness)
    own = [p for p in learner.state.parameters() if p.requires_grad]
    if loss is not None:
        expect(loss.dim() == 0, f"an auxiliary loss of shape {tuple(loss.shape)}", "a scalar", "return a mean")
        loss.backward(inputs=own)
        reached = any(p.grad is not None and p.grad.any() for p in own)
        expect(reached, "no gradient on the state", "some", "let the auxiliary loss depend on the state's parameters")
    pushed = [name for name, p in learner.network.named_parameters() if p.grad is not None]
    advice = "return the loss without calling backward, and keep the network's parameters out of the state"
    expect_none(pushed, "a gradient on {}", "none on the network", advice)


def saved(subject: Subject) -> None:
    """Check that credits depend on parameters and buffers alone: copied or read back they give the same bits."""
    original, batch = subject.trained().learner, subject.batch(8)
    credits = named(credits_of(original, *batch))
    advice = "keep it in parameters or persistent buffers of the state, not in attributes nor in the method"
    for how, learner in (("copied into another learner", _copied), ("saved and loaded", _saved_and_loaded)):
        other = learner(subject, original)
        expect_same(credits, named(credits_of(other, *batch)), f"other credits of {{}} once {how}", advice)
        found = asdict(other.method)
        expect(found == asdict(original.method), f"constants {found} once {how}", "those before", "use plain scalars")


def _copied(subject: Subject, original: Learner) -> Learner:
    """Copy the tensors of `original` into a learner that began with other random draws."""
    other = subject.build(seed=subject.seed + 1)
    load_learner_tensors(other, learner_tensors(original))
    return other


def _saved_and_loaded(subject: Subject, original: Learner) -> Learner:
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(original, path := Path(folder) / "checkpoint")
        return load_checkpoint(path, method=None if subject.name in METHODS else subject.fresh())


def resume(subject: Subject) -> None:
    """Check that a training interrupted after its first epoch and resumed ends with the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resume"
        with contextlib.suppress(Interrupted):
            train(subject.spec(), subject.data, resume=Interrupting(path, "same"), method=subject.fresh())
        again = train(subject.spec(), subject.data, resume=Resume(path, "same"), method=subject.fresh())
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
    """Check that small versions of all architectures train, and that credits fit their states and change nothing."""
    data = clouds(subject.seed, (3, 8, 8), 24, 12)
    for name in ARCHITECTURES:
        try:
            _check_architecture(subject, name, data)
        except Exception as error:
            raise Finding(f"with {name}, {in_one_line(error, subject.method)}") from error


def _check_architecture(subject: Subject, name: str, data: Dataset) -> None:
    defaults = architecture_options(name)
    small = defaults | {option: min(most, defaults[option]) for option, most in SMALL.items() if option in defaults}
    spec = subject.spec(batch_size=12, architecture=name, architecture_options=tuple(small.items()))
    learner, batch = train(spec, data, method=subject.fresh()).learner, evaluation_batches(data)[0]
    credits = named(credits_of(learner, *batch))
    found = [tuple(a.shape) for a in credits.values()]
    expected = [(len(batch[1]), learner.network.width)] * (len(learner.network.blocks) + 1)
    expect(found == expected, f"credits {found}", f"{expected}", "read vectors with network.read and read_gradient")
    expect_finite(learner_tensors(learner) | credits, "")
    learner.train_mode()
    changed = [place for place in changed_by_credits(learner, *batch) if place.startswith("network.")]
    expect_none(changed, "credits changing {}", "nothing changed", "move it to update_state, or copy first")


def declarations(subject: Subject) -> None:
    """Check that plans can read the method's costs from its source, and that a checkpoint keeps its constants."""
    kind = type(subject.method)
    expected = {name: typing.get_args(of)[0] for name, of in typing.get_type_hints(Method).items()}
    own = {name: getattr(kind, name) for name in expected}
    wrong = [f"{name}={value!r}" for name, value in own.items() if not _is(expected[name], value)]
    expect_none(wrong, "{} in the class", "texts, true or false, and costs >= 0, as in Method", "correct it")
    costs = {name: own[name] for name in ("relative_time", "memory_mb")}
    try:
        read = class_literals("fa_audit.methods.method:Method") | class_literals(entry(kind))
    except AuditError:  # a class inside a function: no workflow can name it
        read = costs
    for name, value in costs.items():
        found = f"{name}={read[name]!r} in the source, {value!r} in the class"
        expect(read[name] == value, found, "the same number", "assign costs as literals in a class body")
    constants = {constant.name for constant in fields(kind)}
    declared = {name for name, of in inspect.get_annotations(kind).items() if "ClassVar" not in str(of)}
    lost = sorted(declared - constants)
    expect_none(lost, "{} that no checkpoint keeps", "constants", "decorate with @dataclass(frozen=True)")


def _is(kind: type, value: Any) -> bool:
    """Return whether a class attribute is of its kind, and a finite cost >= 0."""
    if kind in (bool, str):
        return isinstance(value, kind)
    return isinstance(value, int | kind) and not isinstance(value, bool) and 0 <= value < math.inf


def entry(kind: type[Method]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
