"""The training loop: batch, trace, credits, backward pass, optimiser step; history after each
epoch.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from fa_audit.core.errors import AuditError, listed
from fa_audit.core.measured import AT_INPUT
from fa_audit.core.randomness import generator
from fa_audit.core.vectors import cosine, growth, median_norm
from fa_audit.data.dataset import Dataset, evaluation_batches, held_out, pad, training_batches
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods.method import Method
from fa_audit.networks.trace import accuracy_of, reference, untouched
from fa_audit.training.learner import (
    Learner,
    build,
    check_credits,
    checked_credits,
    learn,
)
from fa_audit.training.monitor import should_stop
from fa_audit.training.optimiser import Optimiser
from fa_audit.training.resume import Resume
from fa_audit.training.trajectory import Row

# The number of samples for `grad_norm_1024`, as in the published snapshots.
WIDE = 1024
Batches = list[tuple[Tensor, Tensor]]
# An untrained network has seen no minibatches, and so has no training loss.
_UNSEEN: Row = {"train_loss": None, "train_accuracy": None}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """A finished run.

    Attributes:
        learner: the network and its method after the last epoch.
        history: one row per epoch and state, columns `TRAJECTORY_COLUMNS`; None for a quantity that
            does not exist. An untrained network has the rows of epoch 0.
        accuracy: accuracy on the whole test set after the last epoch.
        seconds: wall time of training, without interruptions.
        stopped_after: the epoch after which the monitor ended the training early, or None.
        validation_accuracy: accuracy on the held-out samples after the last epoch, or None.
    """

    learner: Learner
    history: list[Row]
    accuracy: float
    seconds: float
    stopped_after: int | None = None
    validation_accuracy: float | None = None


def train(
    spec: RunSpec,
    dataset: Dataset,
    *,
    device: torch.device | str = "cpu",
    resume: Resume | None = None,
    method: Method | None = None,
) -> Trained:
    """Train the network of `spec` on `dataset`, with the same bits every time on one machine.

    If `spec.snapshot` is an epoch, training stops after it: the bits are those of the full run at
    that epoch.

    Args:
        resume: the file in which to save the state, and from which to continue; None: save nothing.
        method: an instance to use in place of the method that `spec.method` names.

    Raises:
        AuditError: the method's credits are invalid on the first minibatch, or the method changed
            frozen parameters.
    """
    dataset, validation = held_out(dataset.to(device), spec.validation)
    learner = build(spec, dataset.image_shape, dataset.classes, method).to(device)
    drawn = {n: p.clone() for n, p in learner.network.named_parameters() if not p.requires_grad}
    progress = _train_epochs(learner, dataset, resume)
    _check_frozen(learner, drawn)
    # Only a training of 0 epochs has rows of epoch 0; in others, rows begin with epoch 1.
    history = progress["history"] or observe(learner, evaluation_batches(dataset), epoch=0)
    stopped_after = held_out_accuracy = None
    if progress["epoch"] < spec.last_epoch:
        stopped_after = progress["epoch"]
        names = " and ".join(dict(spec.monitor))
        log.info("stopped by the monitor after epoch %d: %s fired", stopped_after, names)
    if validation:
        held_out_accuracy = accuracy_of(learner.network, evaluation_batches(validation))
    accuracy, seconds = history[-1]["test_accuracy"], progress["seconds"]
    return Trained(learner, history, accuracy, seconds, stopped_after, held_out_accuracy)


def _train_epochs(learner: Learner, dataset: Dataset, resume: Resume | None) -> dict[str, Any]:
    """Train until the monitor fires or the epochs end; return epoch, seconds and history."""
    spec, optimiser = learner.spec, learner.optimiser()
    progress: dict[str, Any] = {"epoch": 0, "seconds": 0.0, "history": []}
    past = resume.load(learner, optimiser) if resume else None
    if past:
        progress = past
        log.info("resuming after epoch %d of %d", progress["epoch"], spec.last_epoch)
    padded, test = pad(dataset.train_images, dataset.padding), evaluation_batches(dataset)
    # The first epoch is saved at once.
    due = 0.0
    for epoch in range(progress["epoch"], spec.last_epoch):
        # Checked before each epoch, so that a resumed training stops where an undisturbed one does.
        if should_stop(spec.monitor, progress["history"]):
            break
        start = time.perf_counter()
        seen = _run_epoch(learner, optimiser, dataset, padded, epoch)
        rows = observe(learner, test, epoch=epoch + 1, seen=seen)
        seconds = time.perf_counter() - start
        progress["epoch"] = epoch + 1
        progress["history"] += rows
        progress["seconds"] += seconds
        if resume and time.monotonic() >= due:
            resume.save(learner, optimiser, progress)
            due = time.monotonic() + resume.every
        _log_epoch(spec, rows, seconds)
    if resume:
        resume.save(learner, optimiser, progress)
    return progress


def _check_frozen(learner: Learner, drawn: dict[str, Tensor]) -> None:
    """Check that frozen parameters are still as they were drawn, as a frozen baseline must be."""
    parameters = dict(learner.network.named_parameters())
    thawed = [n for n in drawn if parameters[n].requires_grad]
    moved = thawed or [n for n, p in drawn.items() if not torch.equal(p, parameters[n])]
    if moved:
        raise AuditError(
            f"method '{learner.spec.method}': frozen {listed(moved, most=3)} changed or thawed in"
            " training; expected the initial values and requires_grad=False. Let only the engine"
            " change the network's parameters."
        )


def _log_epoch(spec: RunSpec, rows: list[Row], seconds: float) -> None:
    last = rows[-1]
    growths = [row["growth"] for row in rows[:-1]]
    log.info(
        f"epoch {last['epoch']}/{spec.epochs}  loss {last['train_loss']:.4f}"
        f"  test accuracy {last['test_accuracy']:.4f}  growth {max(growths, default=1):.3g}"
        f"  ||h_L|| {last['hidden_norm']:.3g}  ||g_L|| {last['grad_norm']:.3g}  {seconds:.2f} s"
    )


def _run_epoch(
    learner: Learner, optimiser: Optimiser, dataset: Dataset, padded: Tensor, epoch: int
) -> Row:
    """Train for one epoch at the cosine schedule's learning rate.

    Return loss and accuracy of the augmented minibatches, each before its update.
    """
    spec = learner.spec
    # The learning rate is constant within an epoch, and above 0 in the last one.
    optimiser.lr.fill_(spec.lr * 0.5 * (1 + math.cos(math.pi * epoch / spec.epochs)))
    learner.train_mode()
    learner.method.begin_epoch(learner.state, epoch / spec.epochs)
    # Every epoch and purpose has its own random stream, so a resumed training draws the same.
    noise = generator(spec.seed, "method", epoch, device=padded.device)
    # Totals are on the device and read once, so that no step waits for it.
    total, hits = torch.zeros(2, device=padded.device)
    count = len(dataset.train_labels)
    steps = -(-count // spec.batch_size)
    batches = _batches(spec, dataset, padded, epoch)
    bar = tqdm(batches, f"epoch {epoch + 1}", steps, leave=False, disable=None)
    for step, (x, labels) in enumerate(bar):
        # Check before the first step: credits of a wrong shape could train by broadcasting.
        if epoch == step == 0:
            check_credits(learner, x, labels)
        optimiser.zero_grad()
        step_loss, step_hits = learn(learner, x, labels, noise)
        # The last minibatch may be smaller: the mean is over samples, not over steps.
        total += step_loss * len(labels)
        hits += step_hits
        optimiser.step()
    return {"train_loss": total.item() / count, "train_accuracy": hits.item() / count}


def _batches(
    spec: RunSpec, dataset: Dataset, padded: Tensor, epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield an epoch's minibatches; a run with random targets gets freshly drawn labels."""
    randomness = generator(spec.seed, "epoch", epoch)
    batches = training_batches(dataset, padded, spec.batch_size, randomness)
    if not spec.random_targets:
        yield from batches
        return
    labels = dataset.train_labels
    randomness = generator(spec.seed, "targets", epoch)
    # Drawn on the CPU, so that every device gets the same targets.
    drawn = torch.randint(dataset.classes, labels.shape, generator=randomness).to(labels.device)
    for (x, _), targets in zip(batches, drawn.split(spec.batch_size), strict=True):
        yield x, targets


def observe(learner: Learner, test: Batches, *, epoch: int, seen: Row = _UNSEEN) -> list[Row]:
    """Return the trajectory rows of one epoch, one per state ``h_0..h_L``.

    Norms are medians over the first test batch. A row's growth and cosines belong to the block that
    reads the state: ``cosine`` compares ``a_l`` with ``g_{l+1}`` at the block's output, and
    ``cosine_at_input`` with ``g_l``. ``grad_norm_1024`` is ``grad_norm`` for the mean loss of the
    first 1,024 test samples, or of all if there are fewer.
    """
    several = test[: -(-WIDE // len(test[0][1]))]
    wide = [torch.cat(parts)[:WIDE] for parts in zip(*several)]
    with untouched(learner.network):
        truth = reference(learner.network, *test[0])
        credits = block_credits(learner, *test[0])
        wide_gradients = reference(learner.network, *wide).gradients
        accuracy = accuracy_of(learner.network, test)
    norms = list(map(median_norm, truth.states))
    # A row has the growth and cosines of the block that reads the state; none reads the last one.
    columns = {
        "hidden_norm": norms,
        "grad_norm": list(map(median_norm, truth.gradients)),
        "growth": [*growth(norms), None],
        "cosine": [*_cosines(credits, truth.gradients[1:]), None],
        f"cosine{AT_INPUT}": [*_cosines(credits, truth.gradients), None],
        "grad_norm_1024": list(map(median_norm, wide_gradients)),
    }
    rows = []
    for layer in range(len(norms)):
        row: Row = {"epoch": epoch, "layer": layer}
        row |= {name: values[layer] for name, values in columns.items()}
        rows.append(row | seen | {"test_accuracy": accuracy})
    return rows


def _cosines(credits: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> list[float | None]:
    """Return every credit's mean cosine with its gradient. It is None if credit and gradient differ
    in shape, or if in every sample one of the two is zero or not finite.
    """
    pairs = zip(credits, gradients)
    return [cosine(a, g).value if a.shape == g.shape else None for a, g in pairs]


def block_credits(learner: Learner, x: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """Return the credits ``a_0..a_{L-1}``, each ``(B, d)``, that would train the blocks on this
    batch.
    """
    # Not strict: audits call this, too, and measure credits of any type, finite or not.
    return checked_credits(learner, x, labels, strict=False).blocks
