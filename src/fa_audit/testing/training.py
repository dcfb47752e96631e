"""Checks of whole trainings: learning, frozen parts, files, interruptions, options and
architectures.
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
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cosine_similarity

from fa_audit.core.randomness import seeded, stream_seed
from fa_audit.core.vectors import cosine
from fa_audit.methods import METHODS
from fa_audit.methods.info import MethodInfo, of_class
from fa_audit.methods.transport import block_weights
from fa_audit.networks import ARCHITECTURES
from fa_audit.networks.trace import reference, trace
from fa_audit.testing import credits, steps
from fa_audit.testing.findings import (
    Finding,
    differing,
    expect,
    expect_finite,
    expect_none,
    expect_same,
    in_one_line,
)
from fa_audit.testing.subject import (
    DEPTH,
    HELD_OUT,
    SEED,
    Subject,
    credits_of,
    gradients_of,
    named_credits,
)
from fa_audit.training.checkpoint import (
    learner_tensors,
    load_checkpoint,
    load_learner_tensors,
    save_checkpoint,
)
from fa_audit.training.learner import Learner, residual_energy
from fa_audit.training.resume import Resume

# By a trait, the checks that it frees a method of.
_FREED = {
    "across_samples": (credits.rows, steps.sizes),
    "own_objective": (steps.trains, credits.direction, credits.downhill),
}
# Chance is 1/6.
_WELL_ABOVE_CHANCE = 0.6
# Credits with a larger cosine are the gradients.
_EXACT = 0.999
# A cosine that a matrix of hundreds of entries has with no other by chance.
_AGAINST = -0.25


def process(subject: Subject) -> None:
    """Expect that a training in another process, with other hashes, ends with the same bits. Derive
    nothing from hash(), id(), the process, the clock, or Python's or numpy's random numbers, and
    never call sys.exit or os._exit.
    """
    try:
        given = pickle.dumps(replace(subject, runs={}))
    except (pickle.PicklingError, AttributeError, TypeError):
        # A class inside a function cannot be sent to another process.
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tensors"
        found = os.pathsep.join(filter(None, sys.path))
        variables = os.environ | {"PYTHONHASHSEED": f"{os.getpid()}", "PYTHONPATH": found}
        code = f"from {__name__} import train_here as train; train({str(path)!r})"
        command = [sys.executable, "-c", code]
        ended = subprocess.run(command, env=variables, input=given, capture_output=True)
        # Other checks name what raised it.
        if b"Traceback" in ended.stderr:
            return
        expect(path.exists(), f"a process that a training ended, status {ended.returncode}")
        expect_same(subject.tensors(), torch.load(path), "different {} in another process")


def train_here(path: str) -> None:
    """Train the subject that standard input holds, as `process` does, and save its tensors."""
    subject = pickle.load(sys.stdin.buffer)
    torch.set_num_threads(1)
    with seeded(stream_seed(SEED, "checks")):
        torch.save(subject.tensors(), path)


def learns(subject: Subject) -> None:
    """Expect held-out accuracy far above chance if credits have a sign, and chance on random
    targets. Check scale and sign, and that the target comes from `labels` alone.
    """
    learner, batch = subject.copy(**credits.GENTLE), subject.batch(HELD_OUT)
    unsigned = math.isnan(credits.cosines(learner, *batch)[-1])
    for changes in ({}, {"penalty": 0.01}, {"random_targets": True}):
        accuracy = subject.trained(epochs=6, terminal_norm=False, **changes).accuracy
        above, may = accuracy >= _WELL_ABOVE_CHANCE, "random_targets" not in changes
        found = f"accuracy {accuracy:.2f} on separable classes with {changes or 'no options'}"
        expect(above == may or (may and unsigned), found)


def moves(subject: Subject) -> None:
    """Expect that training moves every parameter of network and state, unless the lowest credits
    are zero. Give every block a credit. Train the state's parameters by auxiliary_loss or an
    objective, or make them buffers. Let update_state change feedback that is declared as learned,
    towards the weight's sign.
    """
    # Every layer gets some epochs, also where layers learn one after the other.
    epochs = 2 * (DEPTH + 1)
    begun, learner = subject.build(), subject.copy(epochs=epochs)
    found = credits_of(learner, *subject.batch(8))
    idle = ()
    if not found.embedding.any():
        idle += ("embed.",)
    if not found.blocks[0].any():
        idle += ("blocks.0.",)
    moved = _moved(subject, epochs=epochs)
    still = [name for name in begun.network.state_dict() if not name.startswith(idle)]
    expect_none([name for name in still if name not in moved], "{} that training does not move")
    changed = differing(begun.state.state_dict(), learner.state.state_dict())
    learnt = {name for name, p in begun.state.named_parameters() if p.requires_grad}
    expect_none(sorted(learnt - set(changed)), "{} of the state that training does not move")
    feedback = of_class(type(subject.method)).feedback
    if feedback.startswith("learned"):
        expect(changed, f"no change of the state by training, and {feedback=}")
        _check_feedback(subject, learner)


def _check_feedback(subject: Subject, learner: Learner) -> None:
    """Check that learned feedback does not end up opposite to a weight of its shape."""
    batch, against = subject.batch(8), []
    before = named_credits(learner, *batch)
    for name, tensor in learner.state.state_dict().items():
        kept = tensor.clone()
        tensor.zero_()
        idle = not differing(before, named_credits(learner, *batch))
        tensor.copy_(kept)
        # Moments of gradients point against the weights, and carry no credit.
        for weight, forward in () if idle else block_weights(learner.network):
            for turned in (forward, forward.mT):
                if turned.shape == kept.shape:
                    value = cosine_similarity(kept.flatten(), turned.flatten(), dim=0)
                    against += [f"{name} against {weight}"] if value < _AGAINST else []
    expect_none(against, f"learned feedback {{}} (cosine below {_AGAINST})")


def frozen(subject: Subject) -> None:
    """Expect that frozen blocks keep every bit while everything else moves as usual."""
    for count in (1, DEPTH):
        moved = _moved(subject, frozen_blocks=count)
        fixed = tuple(f"blocks.{layer}." for layer in range(count))
        rest = [name for name in _moved(subject) if not name.startswith(fixed)]
        still = [name for name in rest if name not in moved]
        expect_none(still, f"{{}} that does not move with frozen_blocks={count}")


def _moved(subject: Subject, **changes: Any) -> list[str]:
    """List the network's parameters and buffers that training has changed."""
    before, after = subject.build(**changes), subject.trained(**changes).learner
    return differing(before.network.state_dict(), after.network.state_dict())


def options(subject: Subject) -> None:
    """Expect finite numbers under every combination of options, also in networks without blocks."""
    some = {"penalty": 0.01, "frozen_blocks": 2}
    shallow, noise = {"shallow": True}, {"random_targets": True}
    for changes in (some, some | noise, shallow, shallow | noise):
        tensors = subject.tensors(batch_size=48, **changes)
        expect_finite(tensors, f" with {' and '.join(changes)}")


def penalty(subject: Subject) -> None:
    """Expect that a large residual penalty leaves less energy in the residuals. Leave the gradients
    of the network to the engine.
    """
    x, _ = subject.batch(HELD_OUT)
    energies = []
    for strength in (0.0, 10.0):
        network = subject.trained(**{"penalty": strength} if strength else {}).learner.network
        energies.append(residual_energy(trace(network, x, local=True).residuals).item())
    free, penalised = energies
    found = f"residual energy {penalised:.3g} with penalty 10 and {free:.3g} without"
    expect(penalised < free, found)


def auxiliary(subject: Subject) -> None:
    """Expect an auxiliary loss that is a scalar, trains the state and leaves no gradient on the
    network. Return it without calling backward, and keep the network's parameters out of the state.
    """
    learner, (x, labels) = subject.copy(), subject.batch(16)
    method, state, run = learner.method, learner.state, learner.trace(x)
    loss = method.auxiliary_loss(learner.network, run, labels, state, subject.generator())
    if loss is not None:
        expect(loss.dim() == 0, f"an auxiliary loss of shape {tuple(loss.shape)}")
        loss.backward(inputs=[p for p in state.parameters() if p.requires_grad])
        reached = any(gradient.any() for gradient in gradients_of(state).values())
        expect(reached, "no gradient on the state")
    expect_none(gradients_of(learner.network), "a gradient on {}")


def saved(subject: Subject) -> None:
    """Expect the same credits, bit by bit, from a copied or reloaded learner. Keep everything that
    credits depend on in parameters and buffers of the state; constants of the method are plain
    scalars.
    """
    original, batch = subject.trained().learner, subject.batch(8)
    expected = named_credits(original, *batch)

    def compare(other: Learner, how: str) -> None:
        expect_same(expected, named_credits(other, *batch), f"different credits of {{}} once {how}")
        constants = asdict(other.method)
        expect(constants == asdict(original.method), f"constants {constants} once {how}")

    # It began with other random draws, which what lies outside the state would keep.
    copied = subject.build(seed=SEED + 1)
    load_learner_tensors(copied, learner_tensors(original))
    compare(copied, "copied into another learner")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        save_checkpoint(original, path)
        own = None if subject.name in METHODS else subject.fresh()
        compare(load_checkpoint(path, method=own), "saved and loaded")


def resume(subject: Subject) -> None:
    """Expect that a training interrupted after its first epoch and resumed ends with the same bits.
    Keep what changes during training in parameters or persistent buffers of the state.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resume"
        with contextlib.suppress(Interrupted):
            subject.retrained(resume=Interrupting(path, "same"))
        again = subject.retrained(resume=Resume(path, "same"))
    expect_same(subject.tensors(), again, "different {} after an interruption")


class Interrupted(Exception):
    """Interrupt a training."""


class Interrupting(Resume):
    """Interrupt a training as soon as its first epoch is saved."""

    def save(self, *given: Any) -> None:
        super().save(*given)
        raise Interrupted


def architectures(subject: Subject) -> None:
    """Expect credits, sign and steps of learning on every architecture but those that raise
    NotImplementedError. Read gradients with network.read_gradient.
    """
    exact = _least_cosine(subject) > _EXACT
    for name in ARCHITECTURES:
        if name == subject.architecture:
            continue
        try:
            _check_architecture(replace(subject, architecture=name, runs={}), exact=exact)
        except Exception as error:
            if not isinstance(error.__cause__ or error, NotImplementedError):
                raise Finding(f"with {name}, {in_one_line(error, subject.method)}") from error


def _check_architecture(subject: Subject, *, exact: bool) -> None:
    for check in (credits.shapes, credits.purity, credits.rows, credits.labels, credits.direction):
        check(subject)
    objective = credits_of(subject.build(), *subject.batch(8)).objective
    # Tokens and positions of an objective have gradients of their own.
    if not subject.method.end_to_end and objective is None:
        steps.trains(subject)
    least = _least_cosine(subject)
    expect(not exact or least > _EXACT, f"a cosine of {least:.4f} with the gradient, elsewhere 1")


def _least_cosine(subject: Subject) -> float:
    """Return the smallest mean cosine of a credit with the gradient at its own state."""
    learner, batch = subject.copy(), subject.batch(HELD_OUT)
    gradients = reference(learner.network, *batch).gradients
    pairs = zip(named_credits(learner, *batch).values(), gradients, strict=True)
    return min(cosine(a, g).value or 0.0 for a, g in pairs)


def declarations(subject: Subject) -> None:
    """Expect texts, booleans and costs >= 0 in the class, as in MethodInfo, and constants that a
    checkpoint keeps. Decorate the class with @dataclass(frozen=True).
    """
    kind, wrong = type(subject.method), []
    for name, default in asdict(MethodInfo()).items():
        value = getattr(kind, name, default)
        fits = isinstance(value, str)
        if not isinstance(default, str):
            fits = isinstance(value, int | float) and 0 <= value < math.inf
        wrong += [] if fits else [f"{name}={value!r}"]
    expect_none(wrong, "wrong {} in the class")
    annotations = inspect.get_annotations(kind).items()
    declared = {name for name, of in annotations if "ClassVar" not in str(of)}
    lost = declared - {constant.name for constant in fields(kind)}
    expect_none(sorted(lost), "{} that no checkpoint keeps")


def traits(subject: Subject) -> None:
    """Expect that a method needs every trait that exempts it from checks: without the trait, one of
    those checks fails. Drop traits that it does not need.
    """
    kind = type(subject.method)
    for name in _FREED:
        if not getattr(kind, name):
            continue
        strict = type(kind.__name__, (kind,), {name: False})(**vars(subject.method))
        try:
            for check in _FREED[name]:
                check(replace(subject, method=strict))
        except Finding:
            continue
        raise Finding(f"found {name} declared without need")
