"""Check an audit's arguments before anything is measured: accuracies, batches, model, description."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.audit.diagnostics import Batch
from fa_audit.audit.guards import (
    are_classes,
    as_found,
    check_loss,
    check_model,
    is_count,
    listed_batches,
    look_at,
)
from fa_audit.core.errors import AuditError, first_line, shortened
from fa_audit.networks.adapters import OneTensor, as_pair, layout_of, unwrapped
from fa_audit.networks.contract import wrap_model
from fa_audit.networks.description import NotWhole, describe
from fa_audit.networks.network import Network
from fa_audit.networks.proposals import LEAST_COVERED, propose
from fa_audit.networks.states import Description
from fa_audit.networks.trace import (
    LossFunction,
    is_dense,
    outputs_of,
    scalar_loss,
    shown,
    untouched,
)
from fa_audit.protocol.audit import AuditWarning

# The paper's evaluation set: the floor of the gradient depends on the size.
BATCHES, BATCH_SIZE = 10, 128
ROUNDED = 1e-3  # difference of a given accuracy from that of the hits, at most


def check_texts(**texts: Any) -> None:
    """Raise an `AuditError` if one of the arguments is not a text."""
    for name, text in texts.items():
        if not isinstance(text, str):
            raise AuditError(f"{name}: found {shortened(text)}; expected a text.")


def fraction(name: str, value: Any) -> float | None:
    """Return an accuracy as a plain float, or None.

    Raises:
        AuditError: it is not a number in 0..1.
    """
    if value is None:
        return None
    try:
        number = math.nan if torch.as_tensor(value).dtype == torch.bool else float(value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not 0 <= number <= 1:
        raise AuditError(
            f"{name}: found {shortened(value)}; expected a fraction between 0 and 1 (divide "
            "percentages by 100)."
        )
    return number


def paired(
    hits: tuple[Sequence[bool], Sequence[bool]] | None,
    accuracies: tuple[float | None, ...],
    samples: int | None,
) -> tuple[int | None, tuple[int, int] | None]:
    """Count the test samples that only the network, and that only its baseline, classifies
    correctly.

    Raises:
        AuditError: `samples` is not an integer >= 1, or the hits do not match the accuracies.
    """
    if samples is not None and (not is_count(samples) or samples < 1):
        raise AuditError(f"test_samples: found {shortened(samples)}; expected an integer >= 1.")
    if hits is None:
        return samples, None
    try:
        own, frozen = (torch.as_tensor(part).bool().flatten().cpu() for part in hits)
    except (TypeError, ValueError, RuntimeError) as error:
        raise AuditError(
            f"paired_hits: {first_line(error)}; expected two sequences of true or false."
        ) from error
    found = [int(part.sum()) / max(1, len(part)) for part in (own, frozen)]
    same = all(a is not None and abs(a - hit) <= ROUNDED for a, hit in zip(accuracies, found))
    if not same or not len(own) == len(frozen) == (samples or len(own)):
        raise AuditError(
            f"paired_hits: found {len(own)} and {len(frozen)} samples with accuracies "
            f"{found[0]:.4f} and"
            f" {found[1]:.4f}; expected those of headline_acc and frozen_baseline_acc, on the "
            "same test set."
        )
    return len(own), (int((own & ~frozen).sum()), int((frozen & ~own).sum()))


def check_layer(name: str, layer: Any, network: Network) -> None:
    """Raise an `AuditError` that begins with `name` if the network has no such state."""
    if not is_count(layer) or not 0 <= layer <= network.depth:
        raise AuditError(
            f"{name}: found {shortened(layer)}; expected an integer 0..{network.depth}."
        )


@contextmanager
def prepared(
    model: nn.Module,
    given: Mapping[str, Iterable[Batch]],
    description: Description | None,
    loss_fn: LossFunction = F.cross_entropy,
    limit: int | None = BATCHES,
) -> Iterator[tuple[Network, list[list[Batch]], list[AuditWarning]]]:
    """Wrap the model as a `Network` and move batches to its device; restore the model at the end.

    Args:
        given: batches by the name of the caller's argument; a list may be empty. The first `limit`
            batches of each are taken; None takes all.

    Yields:
        The network, the batches of every argument, and warnings about the network's outputs.

    Raises:
        AuditError: as `diagnose`.
    """
    model = unwrapped(model)
    check_model(model, description)
    device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    if torch.is_inference_mode_enabled() or torch.is_autocast_enabled(device.type):
        raise AuditError(
            "an audit needs gradients in the model's own precision; call it outside"
            " torch.inference_mode() and torch.autocast()."
        )
    with as_found(model):  # a DataLoader draws from the global stream
        raw = {}
        for name, part in given.items():
            raw[name] = list(islice(listed_batches(name, part), limit))
        every = list(chain.from_iterable(raw.values()))
        if not every:
            raise AuditError("eval_batches: found no batches; expected at least one (x, labels).")
        if isinstance(every[0], Mapping):
            layout = layout_of(every[0])
            model = OneTensor(model, layout)
            if any(layout_of(batch) != layout for batch in every):
                raise AuditError(
                    "eval_batches: found mappings of different shapes; expected all padded alike."
                )
        batches = []
        for name, part in raw.items():
            batches.append([_checked(name, as_pair(batch), device, loss_fn) for batch in part])
        # A whole batch as it was given: a network may be made for one size.
        x = next(chain.from_iterable(batches))[0]
        network = wrap_model(model, x) if description is None else _described(model, description, x)
        of_logits = loss_fn is F.cross_entropy or isinstance(loss_fn, nn.CrossEntropyLoss)
        classes, warnings = look_at(network, x, logits=of_logits)
        for name, part in zip(given, batches):
            if loss_fn is F.cross_entropy:
                _check_labels(name, part, classes)
            elif part:
                largest = max(part, key=lambda batch: len(batch[0]))
                warnings += check_loss(network, *largest, loss_fn)
            warnings += _gaps(name, part, network, loss_fn)
        yield network, batches, warnings


def _described(model: nn.Module, description: Description, x: Tensor) -> Network:
    try:
        return describe(model, description, x)
    except NotWhole as error:
        for proposal in propose(model, x):
            if proposal.covered >= LEAST_COVERED:
                raise AuditError(f"{error} Whole are those of {proposal.python}.") from error
        raise


def _check_labels(name: str, batches: list[Batch], classes: int) -> None:
    highest = max((int(labels.max()) for _, labels in batches), default=-1)
    if highest >= classes:
        raise AuditError(
            f"{name}: found label {highest}; the network has {classes} classes, 0..{classes - 1}."
        )


def _gaps(
    name: str, part: list[Batch], network: Network, loss_fn: LossFunction
) -> Iterator[AuditWarning]:
    """Warn of NaN in a batch: its loss is then NaN because of the data, not of the network."""
    for index, (x, labels) in enumerate(part):
        if not x.isnan().any() and not labels.isnan().any():
            continue
        with untouched(network), torch.no_grad():
            loss = scalar_loss(loss_fn, outputs_of(network, x)[0], labels)
        if loss.isnan().any():
            where = "inputs" if x.isnan().any() else "labels"
            text = (
                f"{name}: batch {index} has NaN in its {where}, and so in its loss: that says"
                " nothing about the network. Leave those samples out, or replace what is missing as"
                " in training."
            )
            yield AuditWarning(code="gaps in data", text=text)


def _checked(name: str, batch: Any, device: torch.device, loss_fn: LossFunction) -> Batch:
    """Check a pair of inputs and labels ``(B,)`` and move it to the network's device.

    With the caller's own loss, labels may be any tensor with as many rows as inputs.

    Raises:
        AuditError: the batch is no such pair.
    """
    pair = batch if isinstance(batch, list | tuple) and len(batch) == 2 else ()
    if not pair or not all(map(is_dense, pair)):
        raise AuditError(
            f"{name}: found {shown(batch)}; expected pairs of tensors (x, labels), dense"
            " and with values."
        )
    x, labels = pair
    # A loss of the caller's may take targets of any shape and type.
    rows = x.dim() > 0 and labels.dim() > 0 and len(x) == len(labels) and x.numel() > 0
    if loss_fn is not F.cross_entropy and rows:
        classes = isinstance(loss_fn, nn.CrossEntropyLoss) and are_classes(labels)
        return x.to(device), labels.to(device, torch.int64 if classes else labels.dtype)
    if not rows or not are_classes(labels) or labels.to(torch.int64).min() < 0:
        kind = "class indices >= 0, shape (B,)," if loss_fn is F.cross_entropy else "labels"
        raise AuditError(
            f"{name}: found inputs {tuple(x.shape)} and {labels.dtype} labels"
            f" {tuple(labels.shape)}; expected as many {kind} as inputs, and at least one."
        )
    return x.to(device), labels.to(device, torch.int64)


def as_rows(name: str, value: Any) -> Tensor:
    """Return a value as a tensor with a row for each sample.

    Raises:
        AuditError: it is not one; the message begins with `name`.
    """
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        tensor = torch.tensor(0)
    if not is_dense(tensor) or not tensor.dim():
        raise AuditError(
            f"{name}: found {shortened(value)}; expected a dense tensor with a row for each sample."
        )
    return tensor
