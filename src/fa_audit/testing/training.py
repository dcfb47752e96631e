"""Checks of trainings: what learns, what stays frozen, and what survives a file or an interruption."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fa_audit.core.randomness import generator
from fa_audit.methods import METHODS
from fa_audit.networks.trace import trace
from fa_audit.testing.findings import differing, expect, expect_finite, expect_none, expect_same
from fa_audit.testing.subject import CLASSES, DEPTH, HELD_OUT, Subject, credits_of, named
from fa_audit.training.checkpoint import Resume, learner_tensors, load_checkpoint, load_learner_tensors, save_checkpoint
from fa_audit.training.learner import Learner, residual_energy
from fa_audit.training.loop import train
from fa_audit.training.optimiser import AdamW

WELL_ABOVE_CHANCE = 0.6  # chance is 1/6


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

    def save(self, learner: Learner, optimiser: AdamW, progress: dict[str, Any]) -> None:
        super().save(learner, optimiser, progress)
        raise Interrupted
