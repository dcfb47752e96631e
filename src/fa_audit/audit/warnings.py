"""Warn if numbers of an audit may not mean what they seem to mean.

An audit goes on after a warning; `fa_audit.audit.inputs` raises errors for impossible inputs.
Functions yield a warning's code and its text. Shapes: B batch, C classes, d width, N samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from fa_audit.audit.diagnostics import Batch
from fa_audit.core.errors import listed
from fa_audit.networks.description import WHOLE
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Forward, forward, reads_data, untouched
from fa_audit.protocol.audit import Code
from fa_audit.protocol.checks import LEAST_LIKELY, chance
from fa_audit.protocol.evidence import Evidence

Warnings = Iterator[tuple[Code, str]]
_SUM_TO_ONE = 1e-3  # largest distance of the sum of probabilities from 1
_FAILED = 0.05  # a baseline this far below nearest-class-mean accuracy may have failed to train
_OVERLAP = 0.01  # share of repeated samples above which C is in doubt
_LARGE = 1e3  # norm of the gradient of one sample's loss above which the gradient explodes
_FLOAT32_ERROR = 1e-2  # median relative error of float32 gradients above which a warning is given
_NARROW = (torch.float16, torch.bfloat16)


# --- the model ------------------------------------------------------------------------------------


def model_warnings(network: Network, x: Tensor, *, logits: bool) -> Warnings:
    """Warn of types, states and outputs that are not what the checks are meant for.

    Args:
        logits: whether the outputs for the inputs `x` are taken for logits.
    """
    with untouched(network):
        states, _, outputs = network.chain(x.clone())
    outputs = outputs.detach()
    # States count, too: a model may cast inside its forward pass.
    tensors = (*network.parameters(), *network.buffers(), *states, outputs)
    narrow = {str(tensor.dtype) for tensor in tensors if tensor.dtype in _NARROW}
    if narrow:
        yield (
            "narrow type",
            f"The model computes in {' and '.join(sorted(narrow))}: gradients below the type's"
            " smallest number become 0, so that D2 and C may measure the type, not the model. Audit"
            " model.float().",
        )
    partial, unproven = [], []
    # Networks of this package have no `past`: nothing can bypass their states.
    for layer, share in enumerate(getattr(network, "past", ())):
        if share is None:
            unproven.append(str(layer))
        elif share > WHOLE:
            partial.append(f"{100 * share:.3g} % at state {layer}")
    if partial:
        yield (
            "partial states",
            "Partial states: part of the outputs' dependence on the inputs bypasses these states:"
            f" {', '.join(partial)}.",
        )
    if unproven:
        yield (
            "unproven states",
            f"It could not be tested whether anything bypasses state {listed(unproven, 8)}: this"
            " takes two samples with different, finite outputs.",
        )
    if reads_data(network, states[0], x):
        yield (
            "data as state",
            "The first block reads the data itself: D1 then depends on the data's units, and"
            " no embedding trains if the blocks are frozen. Use the first layer as the embedding,"
            " outside the blocks.",
        )
    if logits and _are_probabilities(outputs):
        yield (
            "probabilities",
            "The outputs look like probabilities (none is negative, every row sums to 1), but the"
            " loss applies a second softmax, which changes gradients and checks. Audit the model"
            " without its last softmax.",
        )


def _are_probabilities(outputs: Tensor) -> bool:
    # A single output that is 1 everywhere is no distribution.
    if outputs.dim() != 2 or outputs.shape[1] < 2:
        return False
    off = (outputs.double().sum(dim=1) - 1).abs()
    return bool((off <= _SUM_TO_ONE).all() and (outputs >= 0).all())


# --- samples and labels ---------------------------------------------------------------------------


def are_classes(labels: Tensor) -> bool:
    """Return whether targets can be class indices: integers, one for every sample."""
    real = labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool
    return labels.dim() == 1 and not real


def sample_warnings(batches: list[Batch], ignored: int, *, finite: bool) -> Warnings:
    """Warn of NaN, and of what makes C large: repeated samples, and batches with a single class.

    Args:
        ignored: the label that the loss ignores.
        finite: whether all measurements are finite. NaN in the data alone is no reason to warn:
            models and losses may handle missing values.
    """
    rows, single, gaps = [], 0, []
    for index, (x, labels) in enumerate(batches):
        if not finite and bool(x.isnan().any() or labels.isnan().any()):
            gaps.append(str(index))
        # Samples are compared by their bytes, whatever their type.
        flat = x.detach().cpu().reshape(len(x), -1).contiguous().view(torch.uint8)
        rows += [hash(row.numpy().tobytes()) for row in flat]
        if are_classes(labels):
            counted = labels[labels != ignored]
            single += len(counted.unique()) == 1 < len(counted)
    if gaps:
        yield (
            "gaps in data",
            f"NaN in inputs or labels of batch {listed(gaps, 8)} may be why results are not finite."
            " Leave those samples out, or replace what is missing as in training.",
        )
    repeated = len(rows) - len(set(rows))
    # Many data sets have a few duplicates.
    if len(batches) > 1 and repeated > _OVERLAP * len(rows):
        yield (
            "repeated samples",
            f"Samples occur more than once: {repeated} of the {len(rows)} repeat an earlier one."
            " Samples that batches share can alone make C large. Give disjoint batches.",
        )
    if single:
        yield (
            "single class",
            f"{single} of {len(batches)} batches have samples of one class only: C and the"
            " norms of such batches describe the class, not the data. Shuffle the samples"
            " once, then split them into batches.",
        )


# --- accuracies -----------------------------------------------------------------------------------


def passes_of(network: Network, batches: list[Batch], ignored: int) -> list[Forward]:
    """Run the batches forward, then drop the samples whose label is `ignored`. Return nothing if
    labels are not class indices, or if outputs are not one row of class logits per sample.
    """
    if not all(are_classes(labels) for _, labels in batches):
        return []
    passes = []
    for each in forward(network, batches):
        # An ignored label has no logit.
        counted = each.labels != ignored
        labels, logits = each.labels[counted], each.logits[counted]
        # Outputs for each pixel, for example, are not one row of class logits.
        if logits.dim() != 2 or ((labels < 0) | (labels >= logits.shape[-1])).any():
            return []
        passes.append(Forward(labels, logits, each.embedded[counted]))
    return passes


def hits_of(passes: list[Forward]) -> tuple[int, int] | None:
    """Return how many samples are classified correctly, and how many there are; None if `passes` is
    empty.
    """
    if not passes:
        return None
    hits = samples = 0
    for each in passes:
        hits += int((each.logits.argmax(dim=-1) == each.labels).sum())
        samples += len(each.labels)
    return hits, samples


def accuracy_warnings(
    passes: list[Forward], accuracy: float | None, frozen: float | None
) -> Warnings:
    """Warn if forward passes contradict the network's `accuracy`, or if the frozen baseline's
    accuracy is lower than that of the nearest class mean of ``h_0``.
    """
    # Batches are often a small part of the test set: warn only if a difference is improbable.
    hits = hits_of(passes)
    if hits and chance(hits, accuracy) < LEAST_LIKELY:
        yield (
            "unlikely accuracy",
            f"headline_acc is {accuracy:.3g}, but {hits[0]} of the {hits[1]} samples given are"
            f" classified correctly. So large a difference has a probability below {LEAST_LIKELY:g}:"
            " check the accuracy, the model, the data and the preprocessing.",
        )
    # Fit class means on one half and test on the other: on their own half they may fit any labels.
    half = len(passes) // 2
    readout, samples = _nearest_mean(passes[:half], passes[half:])
    # 1 / sqrt(samples) is two standard errors of an accuracy of 1/2.
    if frozen is not None and samples and frozen < readout - _FAILED - 1 / math.sqrt(samples):
        yield (
            "weak baseline",
            f"The frozen baseline's accuracy is {frozen:.3g}; classifying this network's h_0 by the"
            f" nearest class mean gives {readout:.3g}. The baseline may have failed to train, and"
            " then D3 says little: train it again, on several seeds.",
        )


def _nearest_mean(fitted: list[Forward], tested: list[Forward]) -> tuple[float, int]:
    """Return the accuracy of the nearest class mean of ``h_0``, and the count of samples tested.

    A baseline with a trained embedding should do better.
    """
    if not any(len(each.labels) for each in fitted):
        return 0.0, 0
    x = torch.cat([each.embedded for each in fitted])
    labels = torch.cat([each.labels for each in fitted])
    # Classes without a sample have no mean.
    classes = labels.unique()
    means = torch.stack([x[labels == one].mean(dim=0) for one in classes])
    hits = samples = 0
    for each in tested:
        nearest = classes[torch.cdist(each.embedded, means).argmin(dim=1)]
        hits += int((nearest == each.labels).sum())
        samples += len(each.labels)
    return hits / max(samples, 1), samples


# --- gradients ------------------------------------------------------------------------------------


def gradient_warnings(evidence: Evidence) -> Warnings:
    """Warn of gradients that explode, that were not verified against the forward pass, or that
    float32 does not resolve.
    """
    large, errors = {}, {}
    for layer in evidence.layers:
        if layer.grad_norm_per_sample > _LARGE:
            large[layer.layer] = layer.grad_norm_per_sample
        if layer.float32_error is not None:
            errors[layer.layer] = layer.float32_error.value or 0.0
    if large:
        places, most = ", ".join(map(str, large)), max(large.values())
        yield (
            "exploding gradient",
            f"The gradient explodes at state {places}: its median norm per sample reaches"
            f" {most:.3g} (more than {_LARGE:g}). No check tests this: D2 tests for vanishing"
            " gradients only.",
        )
    if evidence.unchecked and evidence.finite:
        # Either float64 was too coarse at some states, or no state was compared.
        some = "unresolved" in evidence.missing.values()
        yield (
            "gradient unresolved" if some else "gradient not compared",
            "The backward pass was not verified against the forward pass: the model has"
            f" {evidence.unchecked}. Metrics that need an unverified gradient are left out.",
        )
    worst = max(errors, key=errors.__getitem__, default=0)
    if errors.get(worst, 0.0) > _FLOAT32_ERROR:
        yield (
            "rounded gradient",
            f"The gradient at state {worst} differs from the float64 one by {errors[worst]:.2g} of"
            f" its length (more than {_FLOAT32_ERROR:g}): conclusions from this gradient"
            " may only reflect rounding.",
        )
