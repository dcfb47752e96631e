"""Errors and warnings about models and data that would make an audit wrong without any check
firing.
"""

from __future__ import annotations

import math
import platform
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from numbers import Integral
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fa_audit.audit.diagnostics import IGNORED, Batch
from fa_audit.core.errors import AuditError, first_line, listed, shortened
from fa_audit.networks.description import WHOLE, check_repeats
from fa_audit.networks.network import Network
from fa_audit.networks.states import Description
from fa_audit.networks.trace import (
    Forward,
    LossFunction,
    equal,
    forward,
    outputs_of,
    reads_data,
    scalar_loss,
    untouched,
)
from fa_audit.protocol.audit import AuditWarning, Code
from fa_audit.protocol.checks import LEAST_LIKELY, chance
from fa_audit.protocol.evidence import Evidence

SUM_TO_ONE = 1e-3
SUMMED = 1e-3  # relative change of the loss of a batch that is given twice; a sum doubles
FAILED = 0.05  # by which a suspected baseline's accuracy is below a linear readout's
OVERLAP = 0.01  # share of the samples that are repeated
LARGE = 1e3  # gradient of one sample's loss with respect to a state
FLOAT32_ERROR = 1e-2  # median relative error of the gradients above which a warning names float32
NARROW = (torch.float16, torch.bfloat16)
DATA_AS_STATE = (
    "The first block reads the data itself: D1 then measures their units, and frozen blocks leave"
    " no embedding to train. Take the first layer for the embedding: leave it out of the blocks."
)


def check_model(model: Any, description: Any = None) -> None:
    """Check that a model can run, and that `description` is a `Description`.

    Raises:
        AuditError: the model is not a module, is compiled by torch.jit, or has parameters without
            values; or `description` is something else.
    """
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise AuditError(
            f"model: found {type(model).__name__}; expected a torch.nn.Module that torch.jit did"
            " not compile."
        )
    for tensor in (*model.parameters(), *model.buffers()):
        if is_lazy(tensor) or tensor.is_meta:
            raise AuditError(
                f"{type(model).__name__}: found lazy parameters, or some on the meta device;"
                " expected a model with its weights loaded that ran once."
            )
    if not isinstance(description, Description | None):
        raise AuditError(
            f"description: found {shortened(description)}; expected Description(blocks, reads), the"
            " blocks as names of modules, for example Description('layers.*', 'cls token')."
        )


def listed_batches(name: str, batches: Any) -> Iterator[Any]:
    """Yield the evaluation batches; a DataLoader's random generators are left as they were.

    Raises:
        AuditError: iterating over them fails.
    """
    if not isinstance(batches, Iterable):
        raise AuditError(
            f"{name}: found {shortened(batches)}; expected a list or a DataLoader of pairs (x, "
            "labels)."
        )
    given = [
        getattr(part, "generator", None) for part in (batches, getattr(batches, "sampler", None))
    ]
    streams = [stream for stream in given if isinstance(stream, torch.Generator)]
    states = [(stream, stream.get_state()) for stream in streams]
    try:
        yield from batches
    except Exception as error:  # external code may raise anything
        raise AuditError(f"{name}: iterating over it fails: {first_line(error)}.") from error
    finally:
        for stream, state in states:
            stream.set_state(state)


def is_count(value: Any) -> bool:
    """Return whether a value is an integer and not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


@contextmanager
def as_found(model: nn.Module) -> Iterator[None]:
    """Restore the model's parameters, their ``.grad`` and the global random streams at the end.

    Inside this context no parameter has a ``.grad``. `untouched` restores everything else.

    Raises:
        AuditError: the forward pass changed parameters, so that no two passes use the same network.
    """
    streams = random.getstate(), np.random.get_state(), torch.get_rng_state()
    parameters = [
        (name, p, p.data, p.data.clone(), p.requires_grad, p.grad)
        for name, p in model.named_parameters()
    ]
    for _, p, *_ in parameters:
        p.grad = None
    try:
        yield
    finally:
        random.setstate(streams[0])
        np.random.set_state(streams[1])
        torch.set_rng_state(streams[2])
        changed = [name for name, p, _, found, *_ in parameters if not equal(p.data, found)]
        for name, p, data, found, learns, grad in parameters:
            p.requires_grad_(learns)
            p.data, p.grad = data.copy_(found) if name in changed else data, grad
    if changed:
        raise AuditError(
            f"{type(model).__name__}: its forward pass changes {listed(changed, 3)} in evaluation"
            " mode; expected one that leaves parameters alone. Compute what it needs without "
            "writing"
            " to them."
        )


@contextmanager
def loss_as_found(loss_fn: LossFunction) -> Iterator[None]:
    """Put a loss that is a module in evaluation mode, and restore all of its state at the end."""
    if not isinstance(loss_fn, nn.Module):
        yield
        return
    with as_found(loss_fn), untouched(loss_fn):
        yield


def look_at(network: Network, x: Tensor, *, logits: bool = True) -> tuple[int, list[AuditWarning]]:
    """Run a network twice on some inputs; return its number of classes, and warnings about its
    outputs.

    Args:
        logits: whether the outputs are treated as logits.

    Raises:
        AuditError: the two passes differ.
    """
    check_repeats(network, x)
    with untouched(network):
        states, _, outputs = network.chain(x.clone())
    outputs = outputs.detach()
    found: dict[Code, str] = {
        "narrow type": _narrow(network, [*states, outputs]),
        "partial states": _partial(network),
        "unproven states": _unproven(network),
    }
    if reads_data(states[0], x):
        found["data as state"] = DATA_AS_STATE
    if logits and outputs.dim() == 2:
        found["probabilities"] = _probabilities(outputs)
    warnings = [AuditWarning(code=code, text=text) for code, text in found.items() if text]
    return outputs.shape[-1], warnings


def check_loss(
    network: Network, x: Tensor, targets: Tensor, loss_fn: LossFunction
) -> list[AuditWarning]:
    """Check that a loss is finite and a mean over the batch, for which D2's limit is meant.

    Return a warning if only a part of the loss grows with the batch.

    Raises:
        AuditError: the loss of finite logits is not finite, or is a sum over the batch.
    """
    with untouched(network), torch.no_grad():
        logits, _ = outputs_of(network, x)
        loss = float(scalar_loss(loss_fn, logits, targets))
        # A mean of all samples twice is the same, a sum is twice as large.
        try:
            twice = (torch.cat([part, part]) for part in (logits, targets))
            doubled = float(scalar_loss(loss_fn, *twice))
        except AuditError:  # a loss may be made for batches of one size
            doubled = loss
    if not math.isfinite(loss) and bool(logits.isfinite().all()):
        raise AuditError(
            f"loss_fn: found a loss of {loss} for {len(x)} samples with finite logits; expected a"
            " finite number. Does it ignore the labels of all samples, or are some of them NaN?"
        )
    growth = doubled / loss if loss else 1.0
    # The losses themselves may be rounded to eight bits.
    rounding = max(SUMMED, 4 * torch.finfo(logits.dtype).eps)
    if abs(growth - 2) <= rounding:
        raise AuditError(
            f"loss_fn: found a sum over the batch ({loss:.4g} for {len(x)} samples, {doubled:.4g}"
            " for all of them twice); expected the mean, as of reduction='mean': D2 compares its"
            " gradients with a floor for mean losses."
        )
    if abs(growth - 1) > rounding:
        text = (
            f"The loss depends on the size of the batch: {growth:.3g} times as large for all "
            "samples"
            " twice. D2's floor is that of a mean over samples."
        )
        return [AuditWarning(code="batch size in loss", text=text)]
    return []


def ignored_by(loss_fn: LossFunction) -> int:
    """Return the label that a loss ignores, by default that of torch's losses."""
    return int(getattr(loss_fn, "ignore_index", IGNORED))


def contradictions(
    network: Network,
    batches: list[Batch],
    accuracy: float | None,
    frozen: float | None,
    ignored: int,
) -> tuple[tuple[int, int] | None, list[AuditWarning]]:
    """Count the correct predictions on the batches, and warn of accuracies that contradict them.

    Args:
        accuracy, frozen: of the network and of its frozen baseline, as fractions.
        ignored: samples with this label are left out.

    Returns:
        The number of correct samples and of all samples, None without accuracies or class labels;
        and warnings.
    """
    if (accuracy, frozen) == (None, None) or not all(are_classes(labels) for _, labels in batches):
        return None, []
    passes = forward(network, batches)
    right = hits_of(passes, ignored)
    if right is None:
        return None, []
    hits = int(right.sum()), len(right)
    warnings = []
    if chance(hits, accuracy) < LEAST_LIKELY:
        text = (
            f"headline_acc is {accuracy:.3g}, but {hits[0]} of the {hits[1]} samples given are"
            f" classified correctly (chance below {LEAST_LIKELY:g}): another model, other data or"
            " preprocessing, or a wrong accuracy."
        )
        warnings.append(AuditWarning(code="unlikely accuracy", text=text))
    if frozen is not None:
        warnings += _failed_to_train(passes, frozen, ignored)
    return hits, warnings


def hits_of(passes: list[Forward], ignored: int) -> Tensor | None:
    """Return which samples are classified correctly, leaving out the label `ignored`.

    None if the other labels are not class indices.
    """
    if not passes:
        return None
    logits = torch.cat([each.logits for each in passes])
    labels = torch.cat([each.labels for each in passes])
    known = labels[labels != ignored]
    if len(known) and not 0 <= int(known.min()) <= int(known.max()) < logits.shape[-1]:
        return None
    return (logits.argmax(dim=-1) == labels)[labels != ignored]


def _failed_to_train(passes: list[Forward], frozen: float, ignored: int) -> list[AuditWarning]:
    """Warn if a linear readout of ``h_0``, fitted on half of the batches, beats the frozen
    baseline.
    """
    embedded = torch.cat([each.embedded for each in passes])
    labels = torch.cat([each.labels for each in passes])
    # Batches differ, so that no sample is in both halves.
    half = sum(len(each.labels) for each in passes[: len(passes) // 2])
    known = labels != ignored
    fit, rest = known.clone(), known.clone()
    fit[half:], rest[:half] = False, False
    if not fit.any() or not rest.any() or not embedded[known].isfinite().all():
        return []
    readout = linear_readout(embedded[fit], labels[fit], embedded[rest], labels[rest])
    if frozen >= readout - FAILED - 1 / math.sqrt(int(rest.sum())):
        return []
    text = (
        f"The frozen baseline's accuracy is {frozen:.3g}; a linear readout of this network's h_0,"
        f" fitted on {int(fit.sum())} of the samples, has {readout:.3g} on the others. The baseline"
        " may have failed to train, and then depth utility says little: train it again, on several"
        " seeds."
    )
    return [AuditWarning(code="weak baseline", text=text)]


def linear_readout(x: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor) -> float:
    """Fit one-hot labels by ridge regression on vectors ``(N, d)``, in float64; return its accuracy
    on other samples.
    """
    # In kernel form, since samples may be fewer than features.
    mean, scale = x.mean(dim=0), x.std(dim=0).clamp_min(1e-12)
    x, others = (x - mean) / scale, (others - mean) / scale
    onehot = F.one_hot(labels, int(max(labels.max(), other_labels.max())) + 1).double()
    kernel = x @ x.T
    ridge = 0.1 * kernel.diagonal().mean().clamp_min(1e-12) * torch.eye(len(x)).to(kernel)
    weights = torch.linalg.solve(kernel + ridge, onehot - onehot.mean(0))
    hits = (others @ x.T @ weights + onehot.mean(0)).argmax(dim=-1) == other_labels
    return float(hits.double().mean())


def are_classes(labels: Tensor) -> bool:
    """Return whether targets can be class indices: integers, one for every sample."""
    return labels.dim() == 1 and not (
        labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool
    )


def alike(batches: list[Batch], ignored: int) -> Iterator[AuditWarning]:
    """Warn of repeated samples and of batches with a single class: both make C large.

    The label `ignored` is no class.
    """
    rows, single = [], 0
    for x, labels in batches:
        flat = x.detach().cpu().reshape(len(x), -1).contiguous().view(torch.uint8)
        rows += [hash(row.numpy().tobytes()) for row in flat]
        if are_classes(labels):
            kept = labels[labels != ignored]
            single += len(kept.unique()) == 1 < len(kept)
    repeated = len(rows) - len(set(rows))
    if len(batches) > 1 and repeated > OVERLAP * len(rows):
        text = (
            f"{repeated} of the {len(rows)} samples occur more than once: C compares batches "
            "that share samples, and is large by itself. Give disjoint batches."
        )
        yield AuditWarning(code="repeated samples", text=text)
    if single:
        text = (
            f"{single} of {len(batches)} batches have samples of one class only: C then "
            "measures the class, and the norms are not those of the data. Give batches of all "
            "classes,"
            " shuffled once."
        )
        yield AuditWarning(code="single class", text=text)


def gradient_warnings(evidence: Evidence) -> Iterator[AuditWarning]:
    """Warn of gradients that explode, that could not be verified, or that float32 does not resolve."""
    large = [layer for layer in evidence.layers if layer.grad_norm_per_sample > LARGE]
    if large:
        most = max(layer.grad_norm_per_sample for layer in large)
        text = (
            f"The gradient explodes at state {', '.join(str(layer.layer) for layer in large)}: for"
            f" one sample's loss it is up to {most:.3g} (more than {LARGE:g}). No check looks at"
            " that: D2 asks whether it vanished."
        )
        yield AuditWarning(code="exploding gradient", text=text)
    if evidence.unchecked and evidence.finite:
        text = (
            "The backward pass was not compared with the forward pass: the model has"
            f" {evidence.unchecked}. Nothing is compared with its gradients there."
        )
        some = "unresolved" in evidence.missing.values()
        yield AuditWarning(
            code="gradient unresolved" if some else "gradient not compared", text=text
        )
    error, worst = 0.0, 0
    for layer in evidence.layers:
        found = layer.float32_error
        if found is not None and (found.value or 0) > error:
            error, worst = found.value or 0.0, layer.layer
    if error > FLOAT32_ERROR:
        text = (
            f"The gradient at state {worst} is {error:.2g} of its length"
            f" away from the one computed in float64 (more than {FLOAT32_ERROR:g}): what is"
            " concluded from gradients there is about rounding."
        )
        yield AuditWarning(code="rounded gradient", text=text)


def recorded(
    model: nn.Module, network: Network, description: Description | None, x: Tensor
) -> dict[str, Any]:
    """Return how an audit was made, as JSON types: versions, device, precision, model, description,
    date.
    """
    first = next(iter((*model.parameters(), *model.buffers(), x)))
    return {
        "versions": {
            "fa_audit": version("fa-audit"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "device": str(first.device),
        "dtype": str(first.dtype).removeprefix("torch."),
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "states": list(getattr(network, "names", ())),
        "covered": getattr(network, "covered", 1.0),
        "past": list(getattr(network, "past", ())),
        "partial": bool(_bypassed(network)),
        "reads": getattr(network, "reads", ""),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _bypassed(network: Network) -> dict[int, float]:
    """Return for every state the share of the outputs' dependence on the inputs that goes past it."""
    past = enumerate(getattr(network, "past", ()))
    return {layer: share for layer, share in past if share is not None and share > WHOLE}


def _partial(network: Network) -> str:
    """Warn of states that some information goes past."""
    shares = []
    for layer, share in _bypassed(network).items():
        shares.append(f"{100 * share:.3g} % at state {layer}")
    if not shares:
        return ""
    listing = ", ".join(shares)
    return f"Partial states: of what the outputs know of the inputs, {listing} goes past them."


def _unproven(network: Network) -> str:
    """Warn of states that could not be proven whole."""
    past = enumerate(getattr(network, "past", ()))
    unknown = [str(layer) for layer, share in past if share is None]
    if not unknown:
        return ""
    return (
        f"State {listed(unknown, 8)} could not be proven to carry everything: neither the"
        " outputs nor the last state differ between samples."
    )


def _probabilities(logits: Tensor) -> str:
    ones = (logits.double().sum(dim=-1) - 1).abs() <= SUM_TO_ONE
    if logits.shape[-1] < 2 or not (ones.all() and (logits >= 0).all()):
        return ""
    return (
        "The outputs look like probabilities (none is negative, every row sums to 1) and were taken"
        " for logits: gradients and checks are those of a second softmax. Audit the model without"
        " its last softmax."
    )


def _narrow(network: Network, computed: list[Tensor]) -> str:
    kinds = {tensor.dtype for tensor in (*network.parameters(), *network.buffers(), *computed)}
    narrow = sorted(str(kind).removeprefix("torch.") for kind in kinds.intersection(NARROW))
    if not narrow:
        return ""
    return (
        f"The model computes in {' and '.join(narrow)}: gradients below its smallest number vanish,"
        " so that D2 and C may be about its type. Audit model.float()."
    )
