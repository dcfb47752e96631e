"""Measurements of a network: norms, gradients and their float32 accuracy. Verdicts are in
`fa_audit.protocol.verdicts`.

Shapes: B batch, d width, L blocks. Medians are over the samples of one batch, by default the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from fa_audit.audit.backward import check_backward, norms_along_directions
from fa_audit.audit.custom import custom_parts
from fa_audit.audit.resampling import (
    bootstrap_medians,
    jackknife_interval,
    largest_growth,
    percentile_interval,
)
from fa_audit.core.errors import AuditError, first_line, listed
from fa_audit.core.metrics import mean_pairwise_cosine, median_of, median_ratio, pairwise_cosines
from fa_audit.core.vectors import Measured, growth, median_norm, sample_norms, unit
from fa_audit.networks.network import Network
from fa_audit.networks.trace import (
    LossFunction,
    Reference,
    in_double,
    reference,
    scalar_loss,
    untouched,
)
from fa_audit.protocol.checks import UNRESOLVED, UNTRUE, UNVERIFIED
from fa_audit.protocol.intervals import FEWEST, Interval

Batch = tuple[Tensor, Tensor]
# The label that torch's losses ignore.
IGNORED = -100
ABSENT = Measured(None, 0, 0, "not measured")
# Median ||g_l|| where the backward pass does not give it.
Estimates = dict[int, float]
# The entries of a layer that may be absent, with a reason.
MEASURED = ("float32_error", "float32_cosine", "displacement", "cosine_to_embedding")


@dataclass(frozen=True)
class Layer:
    """Evidence at one state ``h_l``.

    Attributes:
        layer: ``l``, 0 for the embedding's output, L for the last state.
        hidden_norm: median ``||h_l||``.
        grad_norm: median ``||g_l||``, gradient of the batch-mean loss: of a feature map, the sum
            over positions.
        grad_norm_per_sample: the same for the per-sample loss, ``B`` times as large.
        growth: ``median||h_{l+1}|| / median||h_l||`` of the block that reads this state; None for
            the last.
        scale_free: ``B * median||h_l|| * median||g_l||``, which an inflated state leaves unchanged.
        float32_error: median over samples of ``||g_l - g_l^64|| / ||g_l^64||``.
        float32_cosine: 1st percentile over samples of ``cos(g_l, g_l^64)``.
        positions: of how many positions the state's vector is the mean; 1 for a plain vector.
        displacement: median over samples of ``||h_l - h_0|| / ||h_0||``, in float64.
        cosine_to_embedding: median over samples of ``cos(h_l, h_0)``, in float64.
        more_samples: the same on more samples, such as ``grad_norm_1024``
            (`fa_audit.audit.more_samples`).
    """

    layer: int
    hidden_norm: float
    grad_norm: float
    grad_norm_per_sample: float
    growth: float | None
    scale_free: float
    float32_error: Measured
    float32_cosine: Measured
    positions: int = 1
    displacement: Measured = ABSENT
    cosine_to_embedding: Measured = ABSENT
    more_samples: dict[str, float | None] = field(default_factory=dict)

    @property
    def grad_norm_position_mean(self) -> float:
        """Return `grad_norm` with the mean over positions in place of the sum: the convention of
        the paper's code.
        """
        return self.grad_norm / self.positions

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, measured quantities with their counts and reasons."""
        measured = {name: getattr(self, name).to_dict() for name in MEASURED}
        return asdict(self) | measured | {"grad_norm_position_mean": self.grad_norm_position_mean}


@dataclass(frozen=True)
class Frequencies:
    """Mean predictions beside class frequencies.

    Attributes:
        gaps: ``mean(p) - mean(y)`` over all batches, by class.
        refitted: (c) on the second half of the batches, once the head's bias is refitted on the
            first half.
    """

    gaps: tuple[float, ...]
    refitted: Measured

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types."""
        return {"gaps": list(self.gaps), "refitted": self.refitted.to_dict()}


@dataclass(frozen=True)
class Diagnostics:
    """All evidence about one network.

    Attributes:
        layers: one entry per state, ``h_0`` first.
        stability: cross-batch cosine of mean gradients at `stability_layer`.
        stability_layer: the state at which it was taken.
        samples: samples that the layers' evidence comes from: those whose label the loss does not
            ignore.
        batches: batches used for the stability.
        finite: False where any state, gradient or logit of any batch is NaN or infinite.
        growth_interval, gradient_interval: 95 % bootstrap intervals over the samples of the largest
            growth and of median ``||g_L||``; None for fewer than 8 samples, or where a norm is not
            finite.
        stability_interval: 95 % jackknife interval over the batches; None for fewer than 8.
        stability_samples: samples of a batch that was used for the stability.
        frequencies: predictions beside labels, where (c) fires under cross-entropy; None elsewhere.
        unchecked: what is custom in the backward pass and why it was not compared with the forward
            pass, at some states or all; empty if nothing is custom, or if it was.
        missing: by state, why the true gradient is not known there (`fa_audit.audit.backward`). The
            norm is an estimate at `untrue` states, NaN where the loss is not that of single
            samples; at others NaN, or too small to verify.
        loss: of the samples that the layers' evidence comes from.
        at_logits: B times the median norm of its gradient at the logits, which is small where the
            loss is saturated.
    """

    layers: tuple[Layer, ...]
    stability: Measured
    stability_layer: int
    samples: int
    batches: int
    finite: bool
    growth_interval: Interval | None = None
    gradient_interval: Interval | None = None
    stability_interval: Interval | None = None
    stability_samples: int | None = None
    missing: Mapping[int, str] = field(default_factory=dict)
    frequencies: Frequencies | None = None
    unchecked: str = ""
    loss: float | None = None
    at_logits: float | None = None

    @property
    def untrue(self) -> tuple[int, ...]:
        """Return the states whose gradient is not the derivative of the loss."""
        return tuple(state for state, reason in self.missing.items() if reason == UNTRUE)


def measure(
    network: Network,
    batches: list[Batch],
    layer_for_stability: int | None = None,
    loss_fn: LossFunction = F.cross_entropy,
    sample: Batch | None = None,
    stability_batches: list[Batch] | None = None,
) -> Diagnostics:
    """Measure `network` on evaluation batches and leave it unchanged.

    Args:
        batches: disjoint ``(x, labels)``.
        layer_for_stability: a state 0..L; default ``max(1, (L + 1) // 2)``.
        loss_fn: the loss whose gradients are taken.
        sample: where the layers' evidence comes from; default the first batch.
        stability_batches: those over which the stability is taken, in place of `batches`. Batches
            of less than half the largest one's size are left out.
    """
    depth, middle = network.depth, layer_for_stability
    if middle is None:
        middle = min(depth, max(1, (depth + 1) // 2))
    sample = batches[0] if sample is None else sample
    over = stability_batches or batches
    with untouched(network):
        truth = reference(network, *sample, loss_fn)
        twin = _measure_double(network, *sample, loss_fn, len(truth.states))
        truth = part_of(truth, counting(truth, sample[1], loss_fn))
        means, finite = _mean_gradients(network, over, middle, loss_fn, {id(sample): truth})
    layers = _layers(truth, twin)
    growth_interval, gradient_interval = _intervals(truth, layers, twin.estimates)
    stability, around = Measured(None, len(means), 0, twin.missing.get(middle, "")), None
    if middle not in twin.missing:
        stability = mean_pairwise_cosine(means)
        around = jackknife_interval(pairwise_cosines(means).cpu().numpy())
    samples = len(truth.logits)
    return Diagnostics(
        layers=layers,
        stability=stability,
        stability_layer=middle,
        samples=samples,
        batches=len(means),
        finite=finite and truth.finite,
        growth_interval=growth_interval,
        gradient_interval=gradient_interval,
        stability_interval=around,
        stability_samples=max((len(labels) for _, labels in over), default=None),
        missing=twin.missing,
        unchecked=twin.unchecked,
        loss=truth.loss,
        at_logits=samples * median_norm(truth.at_logits.flatten(1)),
    )


def _mean_gradients(
    network: Network,
    batches: list[Batch],
    layer: int,
    loss_fn: LossFunction,
    known: Mapping[int, Reference],
) -> tuple[list[Tensor], bool]:
    """Return the mean gradients ``(d,)`` at ``h_layer`` of the batches that count in (c), and
    whether all of their states, gradients and logits are finite.

    Args:
        known: references that were computed before, by the identity of their batch.
    """
    means, finite, least = [], True, least_size(batches)
    for batch in tqdm(batches, "batch", leave=False, disable=None):
        # One batch at a time is kept: states can be large.
        truth = known.get(id(batch)) or reference(network, batch[0], batch[1], loss_fn)
        finite = finite and truth.finite
        if len(batch[1]) >= least:
            means.append(mean_gradient(truth, layer))
    widths = sorted({len(mean) for mean in means})
    if len(widths) > 1:
        raise AuditError(
            f"eval_batches: the vectors that are read of h_{layer} have {listed(map(str, widths))} entries;"
            " expected as many in every batch: inputs of one shape, or a reading of one token or of a mean."
        )
    return means, finite


def counting(truth: Reference, labels: Tensor, loss_fn: LossFunction) -> Tensor:
    """Return a mask ``(B,)`` of the samples that count in a loss; all of them if none does.

    The others have the label that the loss ignores, by default that of torch's losses, and a
    gradient of zero.
    """
    ignored = labels == getattr(loss_fn, "ignore_index", IGNORED)
    silent = (truth.at_logits.flatten(1) == 0).all(dim=1)
    counted = ~(ignored.reshape(len(labels), -1).all(dim=1) & silent)
    return counted if counted.any() else torch.ones_like(counted)


def part_of(truth: Reference, samples: Tensor) -> Reference:
    """Return the rows of some samples of a reference."""
    rows = itemgetter(samples)
    return replace(
        truth,
        states=tuple(map(rows, truth.states)),
        gradients=tuple(map(rows, truth.gradients)),
        logits=rows(truth.logits),
        at_logits=rows(truth.at_logits),
    )


def least_size(batches: list[Batch]) -> float:
    """Return the size from which a batch counts in (c): the mean gradient of a much smaller one is
    another quantity.
    """
    return max((len(labels) for _, labels in batches), default=0) / 2


def mean_gradient(truth: Reference, layer: int) -> Tensor:
    """Return the mean over samples of ``g_l``: ``(d,)``, float64."""
    return truth.gradients[layer].double().mean(dim=0)


def _intervals(
    truth: Reference, layers: tuple[Layer, ...], estimates: Estimates
) -> tuple[Interval | None, Interval | None]:
    """Return bootstrap intervals of the largest growth and of median ``||g_L||``, from resamples of
    the same samples.

    A network without blocks has no growth, an estimated norm no interval.
    """
    norms = map(sample_norms, (*truth.states, truth.gradients[-1]))
    rows = torch.stack(list(norms)).cpu().numpy()
    if rows.shape[1] < FEWEST:
        return None, None
    draws, last = bootstrap_medians(rows), layers[-1]
    of_growth = of_gradient = None
    if last.layer not in estimates:
        of_gradient = percentile_interval(draws[:, -1], last.grad_norm)
    growths = [layer.growth for layer in layers if layer.growth is not None]
    if growths:
        of_growth = percentile_interval(largest_growth(draws[:, :-1]), max(growths))
    return of_growth, of_gradient


def _layers(truth: Reference, twin: _Double) -> tuple[Layer, ...]:
    """Build one entry per state."""
    norms = list(map(median_norm, truth.states))
    growths, samples = [*growth(norms), None], len(truth.logits)
    layers = []
    for layer, (norm, g) in enumerate(zip(norms, truth.gradients)):
        agreement = moved = (Measured(None, samples, 0, twin.problem),) * 2
        if twin.truth:
            agreement = float32_agreement(g, twin.truth.gradients[layer])
            moved = distance_from(twin.truth.states[0], twin.truth.states[layer])
        if layer in twin.missing:
            agreement = (Measured(None, samples, 0, twin.missing[layer]),) * 2
        gradient = twin.estimates.get(layer, median_norm(g))
        layers.append(
            Layer(
                layer=layer,
                hidden_norm=norm,
                grad_norm=gradient,
                grad_norm_per_sample=samples * gradient,
                growth=growths[layer],
                scale_free=samples * norm * gradient,
                float32_error=agreement[0],
                float32_cosine=agreement[1],
                positions=truth.positions[layer],
                displacement=moved[0],
                cosine_to_embedding=moved[1],
            )
        )
    return tuple(layers)


def distance_from(start: Tensor, h: Tensor) -> tuple[Measured, Measured]:
    """Compare a state ``(B, d)`` with the embedding's output: medians of the relative displacement
    and of the cosine.

    >>> moved, angle = distance_from(torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0, 8.0]]))
    >>> moved.value, round(angle.value, 12)
    (1.0, 1.0)
    """
    if start.shape != h.shape:
        reason = "the state has another width than the embedding's output"
        return (Measured(None, len(h), 0, reason),) * 2
    (unit_h, valid_h), (unit_start, valid_start) = unit(h), unit(start)
    cosines = (unit_h * unit_start).sum(dim=-1)
    reason = "no sample where both states are finite and non-zero"
    return median_ratio(h - start, start), median_of(cosines, valid_h & valid_start, reason)


def float32_agreement(single: Tensor, double: Tensor) -> tuple[Measured, Measured]:
    """Compare float32 with float64 gradients ``(B, d)``: median relative error and 1st-percentile
    cosine.

    >>> error, agreement = float32_agreement(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0]]).double())
    >>> error.value, agreement.value
    (0.5, 1.0)
    """
    (unit_single, valid_single), (unit_double, valid_double) = unit(single), unit(double)
    valid = valid_single & valid_double
    reason = "no sample with finite, non-zero gradients in both precisions"
    error = median_of(sample_norms(single.double() - double) / sample_norms(double), valid, reason)
    if error.value is None:
        return error, error
    cosines = (unit_single * unit_double)[valid].sum(dim=-1)
    return error, replace(error, value=cosines.quantile(0.01).item())


class _Double(NamedTuple):
    """The float64 recomputation of the samples that count, or why there is none; the others as in
    `Diagnostics`.
    """

    truth: Reference | None
    problem: str
    missing: dict[int, str]
    estimates: Estimates
    unchecked: str = ""


def _measure_double(
    network: Network, x: Tensor, labels: Tensor, loss_fn: LossFunction, states: int
) -> _Double:
    """Run a network in float64 and, if something in it is custom, compare its backward with its
    forward pass.
    """
    custom, truth = _custom(network, x, labels, loss_fn), None
    untrue: list[int] = []
    rough: list[int] = []
    small: list[int] = []
    norms: Estimates = {}
    try:
        with in_double(network, x, labels, loss_fn) as (twin, x, labels, loss_fn), untouched(twin):
            whole = reference(twin, x, labels, loss_fn)
            counted = counting(whole, labels, loss_fn)
            truth, own = part_of(whole, counted), labels[counted]
            if custom:
                untrue, rough, small = check_backward(twin, x, labels, loss_fn, whole)
            # A mean loss divides by the samples that count in it alone.
            share = 1.0
            if not counted.all():
                share = whole.loss / float(scalar_loss(loss_fn, truth.logits, own))
            for state in untrue:
                norm = norms_along_directions(twin, x[counted], own, loss_fn, truth, state)
                norms[state] = share * norm
    except Exception as error:  # external code may raise anything; the audit goes on without this
        problem = first_line(error)
        if truth is None:
            problem = f"float64 recomputation failed: {problem}"
        missing = dict.fromkeys(range(states) if custom else (), UNVERIFIED)
        unchecked = f"{custom}, and {problem}" if custom else ""
        return _Double(truth, problem, missing, dict.fromkeys(missing, math.nan), unchecked)
    unresolved = sorted(rough + small)
    missing = dict.fromkeys(untrue, UNTRUE) | dict.fromkeys(unresolved, UNRESOLVED)
    places = ", ".join(map(str, unresolved))
    unchecked = f"{custom}, and {UNRESOLVED} at state {places}" if unresolved else ""
    return _Double(truth, "", missing, norms | dict.fromkeys(rough, math.nan), unchecked)


def _custom(network: Network, x: Tensor, labels: Tensor, loss_fn: LossFunction) -> str:
    """Name what is custom between the states and the loss."""

    def run() -> Tensor:
        return scalar_loss(loss_fn, network.chain(x.clone()).logits, labels)

    try:
        return listed(custom_parts(network, run))
    except Exception as error:  # such as of compiled code
        return f"a forward pass that cannot be watched ({first_line(error)})"
