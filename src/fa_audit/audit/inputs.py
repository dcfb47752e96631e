"""Check the arguments of an audit before anything is measured: accuracies, batches, the model, its
description and its loss.

Shapes: B batch, C classes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from numbers import Integral
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fa_audit.audit.diagnostics import Batch
from fa_audit.audit.warnings import Warnings, are_classes, model_warnings
from fa_audit.core.errors import AuditError, first_line, listed, shortened
from fa_audit.networks.description import check_repeats, wrap_model
from fa_audit.networks.network import Network
from fa_audit.networks.states import (
    Description,
    OneTensor,
    as_pair,
    check_module,
    layout_of,
    unwrapped,
)
from fa_audit.networks.trace import (
    LossFunction,
    equal,
    is_dense,
    outputs_of,
    scalar_loss,
    shown,
    untouched,
)
from fa_audit.protocol.audit import Code

# Called as credits(model, x, targets, [h_0..h_L]), or draw(...) with the draw's number at the end.
CreditFunction = Callable[..., Sequence[Tensor]]
# The paper's evaluation batches. The limit of D2 depends on their size.
BATCHES, BATCH_SIZE = 10, 128
_MOST_DIRECTIONS = 4096
_ROUNDED = 1e-3  # largest difference between a given accuracy and that of the hits
_SAME = 1e-3  # largest relative change of a mean loss if its batch is given twice; a sum doubles


# --- values ---------------------------------------------------------------------------------------


def check_texts(**texts: Any) -> None:
    """Raise an `AuditError` if one of the arguments is not a text."""
    for name, text in texts.items():
        if not isinstance(text, str):
            raise AuditError(f"{name}: found {shortened(text)}; expected a text.")


def is_cross_entropy(loss_fn: LossFunction) -> bool:
    """Return whether a loss is torch's cross-entropy, which takes outputs as class logits."""
    return loss_fn is F.cross_entropy or isinstance(loss_fn, nn.CrossEntropyLoss)


def is_count(value: Any) -> bool:
    """Return whether a value is an integer and not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_count(name: str, value: Any, least: int, most: float = math.inf) -> int:
    """Return an integer, also one of numpy, as int; raise an `AuditError` if a value is no integer
    from `least` to `most`.
    """
    if not is_count(value) or not least <= value <= most:
        limits = f">= {least}" if most == math.inf else f"{least}..{most}"
        raise AuditError(f"{name}: found {shortened(value)}; expected an integer {limits}.")
    return int(value)


def fraction(name: str, value: Any) -> float | None:
    """Return an accuracy as a plain float, or None.

    Raises:
        AuditError: it is not a number in 0..1.
    """
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = math.nan  # refused below
    # Python turns booleans and texts into numbers, but they are no accuracies.
    if isinstance(value, bool | str) or not 0 <= number <= 1:
        raise AuditError(
            f"{name}: found {shortened(value)}; expected a fraction between 0 and 1 (divide"
            " percentages by 100)."
        )
    return number


def paired(
    hits: tuple[Sequence[bool], Sequence[bool]] | None,
    accuracies: tuple[float | None, ...],
    samples: int | None,
) -> tuple[int | None, tuple[int, int] | None]:
    """Check hits, and count the samples on which network and baseline differ.

    Args:
        hits: `paired_hits` of `diagnose`.
        accuracies: those of the network and of its frozen baseline.
        samples: `test_samples` of `diagnose`.

    Returns:
        The number of test samples, and a pair: how many of them only the network classifies
        correctly, and how many only its baseline does. Each is None if unknown.

    Raises:
        AuditError: `samples` is not an integer >= 1, or the hits do not match the accuracies.
    """
    if samples is not None:
        samples = check_count("test_samples", samples, 1)
    if hits is None:
        return samples, None
    try:
        # Python lists, arrays and tensors on any device are accepted.
        own, frozen = (torch.as_tensor(part).bool().flatten().cpu() for part in hits)
    except (TypeError, ValueError, RuntimeError) as error:
        raise AuditError(
            f"paired_hits: {first_line(error)}; expected two sequences of true or false."
        ) from error
    right = len(own) == len(frozen) == (samples or len(own))
    for accuracy, part in zip(accuracies, (own, frozen)):
        share = part.double().mean().item()
        right = right and accuracy is not None and abs(accuracy - share) <= _ROUNDED
    if not right:
        raise AuditError(
            f"paired_hits: found {int(own.sum())} of {len(own)} and {int(frozen.sum())} of"
            f" {len(frozen)} correct; expected the shares headline_acc and frozen_baseline_acc, on"
            " the same test set."
        )
    return len(own), (int((own & ~frozen).sum()), int((frozen & ~own).sum()))


def check_credit_arguments(
    credits: CreditFunction | None,
    draw: CreditFunction | None,
    directions: Any,
    blocks: Any,
    network: Network,
) -> None:
    """Check the arguments about a caller's credits.

    Raises:
        AuditError: an argument has a wrong type or value, or `draw` or `blocks` is given without
            `credits`.
    """
    for name, function in {"credits": credits, "draw": draw}.items():
        if function is not None and not callable(function):
            raise AuditError(
                f"{name}: found {shortened(function)}; expected a function that returns a credit"
                " for every block."
            )
    check_count("directions", directions, 1, _MOST_DIRECTIONS)
    if blocks is not None:
        # A single number is refused: blocks=3 may mean block 3 or three blocks.
        several = isinstance(blocks, Collection)
        if not several or not all(is_count(b) and 0 <= b < network.depth for b in blocks):
            raise AuditError(
                f"blocks: found {shortened(blocks)}; expected integers 0..{network.depth - 1}, such"
                " as [0, 1]."
            )
    for name, value in {"draw": draw, "blocks": blocks}.items():
        if credits is None and value is not None:
            raise AuditError(f"{name}: found without credits=; expected both.")


# --- batches --------------------------------------------------------------------------------------


def as_rows(name: str, value: Tensor) -> Tensor:
    """Return a tensor if it has a row for each sample; else raise an `AuditError`."""
    if not is_dense(value) or not value.dim():
        raise AuditError(
            f"{name}: found {shown(value)}; expected a dense tensor with a row for each sample."
        )
    return value


def take_batches(name: str, batches: Any, most: int | None = BATCHES) -> list[Any]:
    """Return the first `most` batches; a DataLoader's random generators are left as they were.

    Raises:
        AuditError: iterating over them fails.
    """
    if not isinstance(batches, Iterable):
        raise AuditError(
            f"{name}: found {shortened(batches)}; expected a list or a DataLoader of pairs"
            " (x, labels)."
        )
    # Shuffling draws from these generators, and must not change a training that goes on.
    streams = []
    for owner in (batches, getattr(batches, "sampler", None)):
        stream = getattr(owner, "generator", None)
        if isinstance(stream, torch.Generator):
            streams.append((stream, stream.get_state()))
    try:
        return list(islice(batches, most))
    except Exception as error:  # external code may raise anything
        raise AuditError(f"{name}: iterating over it fails: {first_line(error)}.") from error
    finally:
        for stream, state in streams:
            stream.set_state(state)


def _checked(name: str, batch: Any, device: torch.device, loss_fn: LossFunction) -> Batch:
    """Check a pair of inputs and labels, and move it to the network's device.

    Raises:
        AuditError: the batch is not a pair of tensors that fit each other and the loss.
    """
    pair = batch if isinstance(batch, list | tuple) and len(batch) == 2 else ()
    if not pair or not all(map(is_dense, pair)):
        raise AuditError(
            f"{name}: found {shown(batch)}; expected pairs of dense tensors (x, labels), not on the"
            " meta device."
        )
    x, labels = pair
    # A single sample without a batch dimension is refused.
    rows = x.dim() > 0 and labels.dim() > 0 and len(x) == len(labels) and x.numel() > 0
    classes = rows and are_classes(labels)
    if loss_fn is F.cross_entropy:
        right, kind = classes and int(labels.min()) >= 0, "class indices >= 0 of shape (B,)"
    else:
        # The caller's own loss may take labels of any type, and any shape with one row per input.
        right, kind = rows, "one row per input"
    if not right:
        least = f", the smallest {int(labels.min())}" if classes else ""
        raise AuditError(
            f"{name}: found inputs {tuple(x.shape)} and {labels.dtype} labels"
            f" {tuple(labels.shape)}{least}; expected as many labels as inputs, and at least one: {kind}."
        )
    # torch's cross-entropy takes indices of 64 bits only.
    if classes and is_cross_entropy(loss_fn):
        labels = labels.to(torch.int64)
    return x.to(device), labels.to(device)


# --- the model ------------------------------------------------------------------------------------


def check_model(model: Any, description: Any = None) -> None:
    """Check that a model can run, and that `description` is a `Description`.

    Raises:
        AuditError: the model is not a module, is compiled by torch.jit, or has parameters without
            values; or `description` is something else.
    """
    check_module(model)
    for tensor in (*model.parameters(), *model.buffers()):
        if is_lazy(tensor) or tensor.is_meta:
            raise AuditError(
                f"{type(model).__name__}: found lazy parameters, or some on the meta device;"
                " expected a model that has its weights and ran once."
            )
    if not isinstance(description, Description | None):
        raise AuditError(
            f"description: found {shortened(description)}; expected Description(blocks, reads), the"
            " blocks as names of modules, for example Description('layers.*', 'cls token')."
        )


@contextmanager
def as_found(model: nn.Module) -> Iterator[None]:
    """Restore the model's parameters, their ``.grad`` and the global random streams at the end.

    Inside this context no parameter has a ``.grad``. `untouched` restores everything else.

    Raises:
        AuditError: the forward pass changed parameters, so that no two passes use the same network.
    """
    streams = random.getstate(), np.random.get_state(), torch.get_rng_state()
    kept = []
    for name, p in model.named_parameters():
        kept.append((name, p, p.data, p.data.clone(), p.requires_grad, p.grad))
        # A model's own backward pass may add to .grad.
        p.grad = None
    changed = []
    try:
        yield
    finally:
        random.setstate(streams[0])
        np.random.set_state(streams[1])
        torch.set_rng_state(streams[2])
        for name, p, data, values, learns, grad in kept:
            if not equal(p.data, values):
                changed.append(name)
                data.copy_(values)
            # The storage itself is put back: other tensors may be views of it.
            p.data, p.grad = data, grad
            p.requires_grad_(learns)
    if changed:
        raise AuditError(
            f"{type(model).__name__}: its forward pass changes {listed(changed, 3)} in evaluation"
            " mode; expected one that leaves parameters alone. Compute what it needs without writing"
            " to them."
        )


def _check_loss(network: Network, x: Tensor, targets: Tensor, loss_fn: LossFunction) -> Warnings:
    """Check that a loss is finite and a mean over the batch, for which D2's limit is meant.

    Yield a warning if the loss depends on the size of the batch in another way.

    Raises:
        AuditError: the loss of finite logits is not finite, or is a sum over the batch.
    """
    with untouched(network), torch.no_grad():
        logits, _ = outputs_of(network, x)
        loss = float(scalar_loss(loss_fn, logits, targets))
        # If all samples are given twice, a mean stays the same and a sum doubles.
        twice = [torch.cat([part, part]) for part in (logits, targets)]
        try:
            doubled = float(scalar_loss(loss_fn, *twice))
        except AuditError:  # a loss may be made for batches of one size
            doubled = loss
    if not math.isfinite(loss) and bool(logits.isfinite().all()):
        raise AuditError(
            f"loss_fn: found a loss of {loss} for {len(x)} samples with finite logits; expected a"
            " finite number. Does the loss ignore all labels, or are some labels NaN?"
        )
    growth = doubled / loss if loss else 1.0
    # In bfloat16, losses themselves are rounded to eight bits.
    rounding = max(_SAME, 4 * torch.finfo(logits.dtype).eps)
    if abs(growth - 2) <= rounding:
        raise AuditError(
            f"loss_fn: found a sum over the batch ({loss:.4g} for {len(x)} samples, {doubled:.4g}"
            " if each is given twice); expected the mean (reduction='mean'): D2's floor is meant"
            " for a mean over samples."
        )
    if abs(growth - 1) > rounding:
        yield (
            "batch size in loss",
            f"The loss depends on the size of the batch: it is {growth:.3g} times as large if"
            " every sample is given twice. D2's floor is meant for a mean over samples.",
        )


@contextmanager
def prepared(
    model: nn.Module,
    given: Mapping[str, Iterable[Batch]],
    description: Description | None,
    loss_fn: LossFunction = F.cross_entropy,
    limit: int | None = BATCHES,
) -> Iterator[tuple[Network, list[list[Batch]], list[tuple[Code, str]]]]:
    """Wrap the model as a `Network` and move batches to its device; restore the model at the end.

    Args:
        given: batches by the name of the caller's argument; a list may be empty. The first `limit`
            batches of each are taken; None takes all.

    Yields:
        The network, the batches of every argument, and warnings about the network and the loss.

    Raises:
        AuditError: as `diagnose`.
    """
    # DataParallel splits batches, and compiled code cannot be watched.
    model = unwrapped(model)
    check_model(model, description)
    device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    # In these contexts tensors have no gradients, or gradients in another precision.
    if torch.is_inference_mode_enabled() or torch.is_autocast_enabled(device.type):
        raise AuditError(
            "an audit needs gradients in the model's own precision; call it outside"
            " torch.inference_mode() and torch.autocast()."
        )
    # Batches are taken inside `as_found`, since a DataLoader draws from the global stream.
    # An empty module stands for a loss that is a function.
    loss = loss_fn if isinstance(loss_fn, nn.Module) else nn.Module()
    with as_found(model), as_found(loss), untouched(loss):
        taken = {name: take_batches(name, part, limit) for name, part in given.items()}
        model = _taking_one_tensor(model, list(chain.from_iterable(taken.values())))
        batches = {}
        for name, part in taken.items():
            batches[name] = [_checked(name, as_pair(batch), device, loss_fn) for batch in part]
        # The batch is not shortened: a network may be made for one batch size.
        x = next(chain.from_iterable(batches.values()))[0]
        network = wrap_model(model, x, description)
        check_repeats(network, x)
        warnings = list(model_warnings(network, x, logits=is_cross_entropy(loss_fn)))
        for name, part in batches.items():
            if part and loss_fn is F.cross_entropy:
                _check_labels(name, part, network)
            elif part:
                # Check the largest batch, since a loss of few samples may be undefined.
                largest = max(part, key=lambda batch: len(batch[0]))
                warnings += _check_loss(network, *largest, loss_fn)
        yield network, list(batches.values()), warnings


def _taking_one_tensor(model: nn.Module, batches: list[Any]) -> nn.Module:
    """Return a model that takes one tensor, even if its batches are mappings of tensors.

    Raises:
        AuditError: there are no batches, or mappings of different shapes.
    """
    if not batches:
        raise AuditError("eval_batches: found no batches; expected at least one (x, labels).")
    if not any(isinstance(batch, Mapping) for batch in batches):
        return model
    layout = layout_of(batches[0])
    if any(layout_of(batch) != layout for batch in batches):
        raise AuditError(
            "eval_batches: found mappings of different shapes; expected all padded to one shape."
        )
    return OneTensor(model, layout)


def _check_labels(name: str, batches: list[Batch], network: Network) -> None:
    # Checked here, since a label without a logit makes CUDA unusable for the process.
    with untouched(network):
        outputs, _ = outputs_of(network, batches[0][0])
    classes = outputs.shape[-1]
    highest = max(int(labels.max()) for _, labels in batches)
    if highest >= classes:
        raise AuditError(
            f"{name}: found label {highest}; the network has {classes} classes, 0..{classes - 1}."
        )
