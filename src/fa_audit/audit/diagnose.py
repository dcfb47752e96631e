"""The public API of the audit: `diagnose`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.audit.credit_metrics import DIRECTIONS, CreditReport
from fa_audit.audit.diagnostics import Batch, measure
from fa_audit.audit.expected_time import announce, expected_seconds
from fa_audit.audit.frequencies import frequencies
from fa_audit.audit.given_credits import CreditFunction, checked, measure_given_credits
from fa_audit.audit.guards import (
    alike,
    are_classes,
    as_found,
    check_loss,
    check_model,
    contradictions,
    is_count,
    large_gradients,
    listed_batches,
    look_at,
    precision_warnings,
    recorded,
    unchecked_warning,
)
from fa_audit.audit.report import DiagnosticReport
from fa_audit.audit.verdicts import Baselines
from fa_audit.core.errors import AuditError, first_line, shortened
from fa_audit.core.thresholds import DiagnosticThresholds, fires
from fa_audit.networks.adapters import as_pair, by_name, layout_of, unwrapped
from fa_audit.networks.contract import wrap_contract_model
from fa_audit.networks.description import describe, shown
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Description, LossFunction, forward

BATCHES, BATCH_SIZE = 10, 128  # the paper's evaluation set: its gradient floor depends on the batch size
ROUNDED = 1e-3  # by how much an accuracy that is given may differ from that of the hits


def diagnose(
    model: nn.Module,
    eval_batches: Iterable[Batch],
    headline_acc: float | None,
    frozen_baseline_acc: float | None = None,
    method_name: str = "method",
    notes: str = "",
    layer_for_stability: int | None = None,
    thresholds: DiagnosticThresholds | None = None,
    *,
    bp_frozen_acc: float | None = None,
    frozen_baseline_name: str = "own frozen baseline",
    description: Description | None = None,
    credits: CreditFunction | None = None,
    draw: CreditFunction | None = None,
    directions: int = DIRECTIONS,
    blocks: Collection[int] | None = None,
    loss_fn: LossFunction = F.cross_entropy,
    sample: Batch | None = None,
    test_samples: int | None = None,
    paired_hits: tuple[Sequence[bool], Sequence[bool]] | None = None,
    stability_batches: Iterable[Batch] | None = None,
) -> DiagnosticReport:
    """Audit a network.

    Args:
        model: one of this package's networks, any network of the reference contract (see
            `fa_audit.networks.contract`), or any module at all with a `description`.
        eval_batches: disjoint, unshuffled ``(x, labels)`` test batches; the first 10 are used. With fewer than 8 the
            cross-batch stability is not evaluated.
        headline_acc: accuracy of the last epoch on the whole test set, as a fraction; None if unknown.
        frozen_baseline_acc: accuracy of the same network with its blocks frozen at initialisation and its embedding
            trained by the method's own credit. Without it depth utility is not evaluated.
        layer_for_stability: state for the cross-batch stability; default ``max(1, (L + 1) // 2)``.
        thresholds: limits of the checks; default the paper's.
        bp_frozen_acc: accuracy of the frozen network whose embedding is trained by backpropagation.
        frozen_baseline_name: how verdicts name the frozen baseline.
        description: where the model's states are; without it the model must follow the contract.
        credits: ``credits(model, x, y, states) -> [a_0..a_{L-1}]``, the credits of an implementation of your own on a
            batch, in evaluation mode: ``a_l`` is a direction for the output of block l, ``states[l + 1]``, and shaped
            like it, or like the vector ``(B, d)`` that is read of it. The report then has every credit metric.
        draw: ``draw(model, x, y, states, number) -> [a_0..a_{L-1}]``, the same credits with fresh feedback for every
            number: the null of their cosines.
        directions: in which every state is moved, to compare credits with changes of the loss; fewer take less time.
        blocks: those whose credits are compared with changes of the loss; default all.
        loss_fn: of logits ``(B, C)`` and the labels, the loss of everything. The floor of D2 was calibrated for
            cross-entropy; for another loss the labels may be any tensor with one row per input.
        sample: ``(x, labels)`` that the norms of states and gradients come from; default the first of `eval_batches`.
        test_samples: size of the test set on which the accuracies were taken: the margin's interval follows from it.
        paired_hits: for every test sample, whether this network, and whether its own frozen baseline, classifies it
            correctly: the interval is then that of the pairs, which is narrower.
        stability_batches: 8 to 10 smaller batches for the cross-batch stability, of a test set that has not enough
            samples for as many of 128; everything else comes from `sample`.

    Raises:
        AuditError: no batches, an accuracy outside 0..1, hits that do not make the accuracies, a layer that does not
            exist, a network that does not follow the contract or that computes something else each time, a description
            that does not fit the model, a non-scalar loss, or invalid credits.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> x, labels = torch.eye(16).view(16, 1, 4, 4), torch.arange(16) % 3
    >>> report = diagnose(model, [(x, labels)], 0.41, 0.40, description=Description(("1", "2"), "all features"))
    >>> report.three_check_verdict
    'FAIL(D3)'
    >>> len(report.residual_norms)
    3
    """
    if not isinstance(thresholds, DiagnosticThresholds | None):
        raise AuditError(f"thresholds: found {shortened(thresholds)}; expected DiagnosticThresholds(...) or None.")
    for name, text in (("method_name", method_name), ("notes", notes), ("frozen_baseline_name", frozen_baseline_name)):
        if not isinstance(text, str):
            raise AuditError(f"{name}: found {shortened(text)}; expected a text.")
    if type(loss_fn) is nn.CrossEntropyLoss and str(vars(loss_fn)) == str(vars(nn.CrossEntropyLoss())):
        loss_fn = F.cross_entropy
    headline_acc = _fraction("headline_acc", headline_acc)
    frozen_baseline_acc = _fraction("frozen_baseline_acc", frozen_baseline_acc)
    bp_frozen_acc = _fraction("bp_frozen_acc", bp_frozen_acc)
    samples, paired = _paired(paired_hits, (headline_acc, frozen_baseline_acc), test_samples)
    given = {
        "sample": [] if sample is None else [sample],
        "eval_batches": eval_batches,
        "stability_batches": () if stability_batches is None else stability_batches,
    }
    with prepared(model, given, description, loss_fn) as (network, (first, batches, others), warnings):
        if layer_for_stability is not None:
            check_layer("layer_for_stability", layer_for_stability, network)
        given_credits = checked(credits, draw, directions, blocks, network)
        where, measured = (first or batches or others)[0], CreditReport()
        announce(expected_seconds(network, where, [*batches, *others], loss_fn, given_credits))
        if given_credits:
            measured = measure_given_credits(given_credits, model, network, *where, loss_fn)
        evidence = measure(network, batches, layer_for_stability, loss_fn, where, others)
        measured = measured.without(evidence.untrue)
        limits = thresholds or DiagnosticThresholds()
        fired = fires("stability", evidence.stability.value or 0, limits.stability_drift_ceiling)
        told = headline_acc is not None or frozen_baseline_acc is not None
        labelled = all(are_classes(labels) for _, labels in batches)
        passes = forward(network, batches) if told and labelled else []
        warnings += contradictions(passes, headline_acc, frozen_baseline_acc)
        if loss_fn is F.cross_entropy and fired:
            seen = passes if passes and not others else forward(network, others or batches)
            found = frequencies(network, others or batches, seen, evidence.stability_layer)
            evidence = replace(evidence, frequencies=found)
        warnings += [*alike(others or batches), *large_gradients(evidence), *unchecked_warning(evidence)]
        about = recorded(model, network, description, where[0])
    return DiagnosticReport(
        method_name=method_name,
        evidence=evidence,
        headline_acc=headline_acc,
        baselines=Baselines(frozen_baseline_acc, frozen_baseline_name, bp_frozen_acc, samples, paired),
        thresholds=limits,
        notes=notes if loss_fn is F.cross_entropy else joined(notes, f"gradients of {_named(loss_fn)}"),
        credit=measured.blocks,
        deep=measured.deep,
        warnings=(*warnings, *precision_warnings(evidence)),
        about=about,
    )


def _fraction(name: str, value: Any) -> float | None:
    """Return an accuracy as a plain float, or None.

    Raises:
        AuditError: it is not a number in 0..1.
    """
    try:
        number = None if value is None else math.nan if torch.as_tensor(value).dtype == torch.bool else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if number is not None and not 0 <= number <= 1:
        raise AuditError(
            f"{name}: found {shortened(value)}; expected a fraction between 0 and 1 (divide percentages by 100)."
        )
    return number


def joined(notes: str, more: str) -> str:
    """Return both, separated by a semicolon."""
    return f"{notes}; {more}" if notes else more


def _named(loss_fn: LossFunction) -> str:
    return getattr(loss_fn, "__name__", type(loss_fn).__name__)


def check_layer(name: str, layer: Any, network: Network) -> None:
    """Raise an `AuditError` that begins with `name` if the network has no such state."""
    if not is_count(layer) or not 0 <= layer <= len(network.blocks):
        raise AuditError(f"{name}: found {shortened(layer)}; expected an integer 0..{len(network.blocks)}.")


def _paired(
    hits: tuple[Sequence[bool], Sequence[bool]] | None, accuracies: tuple[float | None, ...], samples: int | None
) -> tuple[int | None, tuple[int, int] | None]:
    """Return how many test samples there are, and how many only the network, and only its baseline, gets right.

    Raises:
        AuditError: the number is not an integer >= 1, or the hits do not match the accuracies.
    """
    if samples is not None and (not is_count(samples) or samples < 1):
        raise AuditError(f"test_samples: found {shortened(samples)}; expected an integer >= 1.")
    if hits is None:
        return samples, None
    try:
        own, frozen = (torch.as_tensor(part).bool().flatten().cpu() for part in hits)
    except (TypeError, ValueError, RuntimeError) as error:
        raise AuditError(f"paired_hits: {first_line(error)}; expected two sequences of true or false.") from error
    found = [int(part.sum()) / max(1, len(part)) for part in (own, frozen)]
    same = all(a is not None and abs(a - hit) <= ROUNDED for a, hit in zip(accuracies, found))
    if not same or not len(own) == len(frozen) == (samples or len(own)):
        raise AuditError(
            f"paired_hits: found {len(own)} and {len(frozen)} samples with accuracies {found[0]:.4f} and"
            f" {found[1]:.4f}; expected those of headline_acc and frozen_baseline_acc, on the same test set."
        )
    return len(own), (int((own & ~frozen).sum()), int((frozen & ~own).sum()))


@contextmanager
def prepared(
    model: nn.Module,
    given: Mapping[str, Iterable[Batch]],
    description: Description | None,
    loss_fn: LossFunction = F.cross_entropy,
    limit: int | None = BATCHES,
) -> Iterator[tuple[Network, list[list[Batch]], list[str]]]:
    """Wrap the model as a `Network`, and move batches to its device; afterwards the model is as it was found.

    Args:
        given: batches for every use, of which some may need none, by the name of the caller's argument; the first
            `limit` are taken, all if it is None.

    Yields:
        The network, its batches for every use, and warnings about what it computes.

    Raises:
        AuditError: as `diagnose`.
    """
    check_model(model := unwrapped(model), description)
    device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    if torch.is_inference_mode_enabled() or torch.is_autocast_enabled(device.type):
        raise AuditError(
            "an audit needs gradients in the model's own precision; call it outside torch.inference_mode() and"
            " torch.autocast()."
        )
    with as_found(model):  # a DataLoader draws from the global stream
        raw = {name: list(islice(listed_batches(name, part), limit)) for name, part in given.items()}
        if description and isinstance(first := next(chain.from_iterable(raw.values()), None), Mapping):
            model, description = by_name(model, description, first)
            if any(layout_of(batch) != layout_of(first) for part in raw.values() for batch in part):
                raise AuditError("eval_batches: found mappings of different shapes; expected all padded alike.")
        batches = [[_checked(name, as_pair(batch), device, loss_fn) for batch in part] for name, part in raw.items()]
        every = list(chain.from_iterable(batches))
        if not every:
            raise AuditError("eval_batches: found no batches; expected at least one (x, labels).")
        x = every[0][0]
        network = describe(model, description, x) if description else wrap_contract_model(model, x)
        classes, warnings = look_at(network, x, logits=loss_fn is F.cross_entropy)
        for name, part in zip(given, batches):
            if loss_fn is F.cross_entropy:
                _check_labels(name, part, classes)
            elif part:
                check_loss(network, *part[0], loss_fn)
        yield network, batches, warnings


def _check_labels(name: str, batches: list[Batch], classes: int) -> None:
    highest = max((int(labels.max()) for _, labels in batches), default=-1)
    if highest >= classes:
        raise AuditError(f"{name}: found label {highest}; the network has {classes} classes, 0..{classes - 1}.")


def _checked(name: str, batch: Any, device: torch.device, loss_fn: LossFunction) -> Batch:
    """Check a pair of inputs and labels ``(B,)`` and move it to the network's device.

    Labels for a loss of the caller's may be any tensor with as many rows as inputs.

    Raises:
        AuditError: it is not such a pair.
    """
    pair = batch if isinstance(batch, list | tuple) and len(batch) == 2 else ()
    if not pair or not all(isinstance(part, Tensor) for part in pair):
        raise AuditError(f"{name}: found {shown(batch)}; expected pairs of tensors (x, labels).")
    for part in pair:
        if part.layout != torch.strided or part.is_nested or part.is_meta:
            kind = "nested" if part.is_nested else "meta" if part.is_meta else part.layout
            raise AuditError(f"{name}: found a tensor that is {kind}; expected dense ones that hold values.")
    x, labels = pair
    rows = x.dim() > 0 and labels.dim() > 0 and len(x) == len(labels) and x.numel() > 0
    if loss_fn is not F.cross_entropy and rows:
        return x.to(device), labels.to(device)
    if not rows or not are_classes(labels) or labels.to(torch.int64).min() < 0:
        kind = "class indices >= 0, shape (B,)," if loss_fn is F.cross_entropy else "labels"
        raise AuditError(
            f"{name}: found inputs {tuple(x.shape)} and {labels.dtype} labels {tuple(labels.shape)};"
            f" expected as many {kind} as inputs, and at least one."
        )
    return x.to(device), labels.to(device, torch.int64)


def as_rows(name: str, value: Any) -> Tensor:
    """Return a value as a tensor with a row for each sample.

    Raises:
        AuditError: it is none; the message begins with `name`.
    """
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise AuditError(f"{name}: found {shown(value)}; expected a tensor with a row for each sample.") from error
    if tensor.is_nested or not tensor.dim() or tensor.layout != torch.strided:
        raise AuditError(f"{name}: found {shortened(value)}; expected a dense tensor with a row for each sample.")
    return tensor
