"""Measure a network: norms, gradients, and how accurate float32 gradients are.

Shapes: B batch, d width, L blocks. Medians are over the samples of one batch, by default the first.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from fa_audit.audit.backward import check_backward, custom_parts, norms_along_directions
from fa_audit.audit.statistics import (
    bootstrap_medians,
    jackknife_interval,
    largest_growth,
    mean_pairwise_cosine,
    median_of,
    median_ratio,
    pairwise_cosines,
    percentile_interval,
)
from fa_audit.core.errors import AuditError, first_line, listed
from fa_audit.core.measured import Interval, Measured
from fa_audit.core.vectors import cosines, growth, median_norm, sample_norms
from fa_audit.networks.network import Network
from fa_audit.networks.trace import (
    LossFunction,
    Reference,
    forward,
    in_double,
    reference,
    scalar_loss,
    untouched,
)
from fa_audit.protocol.evidence import REASONS, Evidence, Frequencies, Missing, Stability, State
from fa_audit.protocol.intervals import FEWEST

Batch = tuple[Tensor, Tensor]


def measure(
    network: Network,
    sample: Batch,
    batches: list[Batch],
    layer_for_stability: int | None = None,
    loss_fn: LossFunction = F.cross_entropy,
) -> Evidence:
    """Measure `network` on evaluation batches and leave it unchanged.

    Args:
        sample: ``(x, labels)`` on which the layers are measured.
        batches: disjoint batches for the stability. Those smaller than half of the largest are left
            out.
        layer_for_stability: a state 0..L; default ``(L + 1) // 2``.
        loss_fn: the loss whose gradients are taken.
    """
    middle = layer_for_stability
    if middle is None:
        # The state after half of the blocks; with one block, the last state.
        middle = (network.depth + 1) // 2
    with untouched(network):
        truth = reference(network, *sample, loss_fn)
        # Ignored samples run in float64, too: a loss may depend on the number of samples.
        twin = _measure_double(network, *sample, loss_fn, len(truth.states))
        truth = part_of(truth, counting(truth, sample[1], loss_fn))
        means, finite = _mean_gradients(network, batches, middle, loss_fn, sample, truth)
    layers = _layers(truth, twin)
    growth_interval, gradient_interval = _intervals(truth, layers, twin)
    # Without the true gradient at state `middle`, C has neither value nor interval.
    around = None
    if middle in twin.missing:
        measured = Measured(None, len(means), 0, REASONS[twin.missing[middle]])
    else:
        measured = mean_pairwise_cosine(means)
        around = jackknife_interval(pairwise_cosines(means).cpu().numpy())
    largest = max((len(labels) for _, labels in batches), default=None)
    stability = Stability(**asdict(measured), layer=middle, samples=largest, jackknife=around)
    samples = len(truth.logits)
    return Evidence(
        layers=tuple(layers),
        stability=stability,
        samples=samples,
        batches=len(means),
        finite=finite and truth.finite,
        growth_interval=growth_interval,
        gradient_interval=gradient_interval,
        missing=twin.missing,
        unchecked=twin.unchecked,
        loss=truth.loss,
        at_logits=samples * median_norm(truth.at_logits.reshape(samples, -1)),
    )


def _mean_gradients(
    network: Network,
    batches: list[Batch],
    layer: int,
    loss_fn: LossFunction,
    sample: Batch,
    of_sample: Reference,
) -> tuple[list[Tensor], bool]:
    """Return the mean gradient ``(d,)`` at ``h_layer`` for every batch that check C compares.

    Also return whether the states, gradients and logits of all batches are finite.

    Args:
        of_sample: the `reference` of the batch `sample`, used if `sample` is one of `batches`.
    """
    # Small batches run, too, because all samples are checked for finite values.
    means, finite, least = [], True, least_size(batches)
    for batch in tqdm(batches, "batch", leave=False, disable=None):
        # One batch at a time is kept: states can be large.
        truth = of_sample if batch is sample else reference(network, batch[0], batch[1], loss_fn)
        finite = finite and truth.finite
        if len(batch[1]) >= least:
            means.append(mean_gradient(truth, layer))
    widths = sorted({len(mean) for mean in means})
    if len(widths) > 1:
        raise AuditError(
            f"eval_batches: the vectors read from h_{layer} have {listed(map(str, widths))}"
            " entries; expected the same number in every batch. Give inputs of one shape, or read"
            " one token or a mean."
        )
    return means, finite


def counting(truth: Reference, labels: Tensor, loss_fn: LossFunction) -> Tensor:
    """Return a mask ``(B,)`` of the samples that count in a loss; it selects all if none counts.

    A sample does not count if its gradient is zero and its label is the one that the loss ignores.
    """
    # In a user-defined loss -100 may be a class; the gradient of such a sample is not zero.
    ignored = labels == ignored_by(loss_fn)
    silent = (truth.at_logits.reshape(len(labels), -1) == 0).all(dim=1)
    counted = ~(ignored.reshape(len(labels), -1).all(dim=1) & silent)
    return counted if counted.any() else torch.ones_like(counted)


def ignored_by(loss_fn: LossFunction) -> int:
    """Return the label that a loss ignores, by default -100 as in torch."""
    return int(getattr(loss_fn, "ignore_index", -100))


def part_of(truth: Reference, samples: Tensor) -> Reference:
    """Return a reference that holds only the rows in the mask `samples`."""
    rows = itemgetter(samples)
    return replace(
        truth,
        states=tuple(map(rows, truth.states)),
        gradients=tuple(map(rows, truth.gradients)),
        logits=rows(truth.logits),
        at_logits=rows(truth.at_logits),
    )


def least_size(batches: list[Batch]) -> float:
    """Return the least size of a batch that check C compares.

    Mean gradients of smaller batches are too noisy.
    """
    return max((len(labels) for _, labels in batches), default=0) / 2


def mean_gradient(truth: Reference, layer: int) -> Tensor:
    """Return the mean over samples of ``g_l``: ``(d,)``, float64."""
    return truth.gradients[layer].double().mean(dim=0)


def _intervals(
    truth: Reference, layers: list[State], twin: _Double
) -> tuple[Interval | None, Interval | None]:
    """Return bootstrap intervals of the largest growth and of median ``||g_L||``.

    Both use the same resamples. A network without blocks has no growth; an estimated norm has no
    interval.
    """
    # The last row holds the gradient's norms; the rows before it hold the states' norms.
    norms = [sample_norms(vectors) for vectors in (*truth.states, truth.gradients[-1])]
    rows = torch.stack(norms).cpu().numpy()
    if rows.shape[1] < FEWEST:
        return None, None
    draws, last = bootstrap_medians(rows), layers[-1]
    of_growth = of_gradient = None
    if last.layer not in twin.estimates:
        of_gradient = percentile_interval(draws[:, -1], last.grad_norm)
    growths = [layer.growth for layer in layers if layer.growth is not None]
    if growths:
        of_growth = percentile_interval(largest_growth(draws[:, :-1]), max(growths))
    return of_growth, of_gradient


def _layers(truth: Reference, twin: _Double) -> list[State]:
    """Build the record of every state: norms, growth, errors of float32, distance from ``h_0``."""
    norms = [median_norm(h) for h in truth.states]
    growths, samples = [*growth(norms), None], len(truth.logits)
    layers = []
    for layer, (norm, g) in enumerate(zip(norms, truth.gradients)):
        if twin.truth is None:
            agreement = moved = _without_value(samples, twin.problem)
        else:
            agreement = float32_agreement(g, twin.truth.gradients[layer])
            moved = distance_from(twin.truth.states[0], twin.truth.states[layer])
        # Without a true gradient, float32 has nothing with which it could agree.
        if layer in twin.missing:
            agreement = _without_value(samples, REASONS[twin.missing[layer]])
        gradient = twin.estimates.get(layer, median_norm(g))
        layers.append(
            State(
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
    return layers


def _without_value(samples: int, reason: str) -> tuple[Measured, Measured]:
    absent = Measured(None, samples, 0, reason)
    return absent, absent


def distance_from(start: Tensor, h: Tensor) -> tuple[Measured, Measured]:
    """Compare a state `h` with the embedding's output `start`, each ``(B, d)``.

    Return medians over samples of ``||h - start|| / ||start||`` and of the cosine.

    >>> moved, angle = distance_from(torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0, 8.0]]))
    >>> moved.value, round(angle.value, 12)
    (1.0, 1.0)
    """
    if start.shape != h.shape:
        return _without_value(len(h), "the state has another width than the embedding's output")
    reason = "no sample where both states are finite and non-zero"
    return median_ratio(h - start, start), median_of(*cosines(h, start), reason)


def float32_agreement(single: Tensor, double: Tensor) -> tuple[Measured, Measured]:
    """Return the median relative error of float32 against float64 gradients ``(B, d)``, and the 1st
    percentile of their cosines.

    >>> error, agreement = float32_agreement(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0]]).double())
    >>> error.value, agreement.value
    (0.5, 1.0)
    """
    angles, valid = cosines(single, double)
    reason = "no sample with finite, non-zero gradients in both precisions"
    error = median_of(sample_norms(single.double() - double) / sample_norms(double), valid, reason)
    if error.value is None:
        return error, error
    return error, replace(error, value=angles[valid].quantile(0.01).item())


@dataclass
class _Double:
    """The recomputation in float64 of the samples that `counting` selects, or why there is none.

    Attributes:
        truth: the `reference` of these samples, or None.
        problem: why `truth` is None, or why the comparison of the backward pass failed.
        estimates: by state, the norm that replaces median ``||g_l||`` if the gradient is wrong or
            could not be verified; NaN if unknown.
        missing, unchecked: as in `Evidence`.
    """

    truth: Reference | None = None
    problem: str = ""
    missing: dict[int, Missing] = field(default_factory=dict)
    estimates: dict[int, float] = field(default_factory=dict)
    unchecked: str = ""


def _measure_double(
    network: Network, x: Tensor, labels: Tensor, loss_fn: LossFunction, states: int
) -> _Double:
    """Run a network in float64; if it has custom parts, check its backward pass."""
    custom, found = _custom(network, x, labels, loss_fn), _Double()
    try:
        with in_double(network, x, labels, loss_fn) as (twin, x, labels, loss_fn), untouched(twin):
            whole = reference(twin, x, labels, loss_fn)
            counted = counting(whole, labels, loss_fn)
            found.truth = part_of(whole, counted)
            if custom:
                _compare_backward(found, twin, x, labels, loss_fn, whole, counted)
    except Exception as error:  # external code may raise anything; the audit goes on without this
        found.problem = first_line(error)
        # If only the comparison failed, `truth` stays valid.
        if found.truth is None:
            found.problem = f"float64 recomputation failed: {found.problem}"
        if custom:
            found.missing = dict.fromkeys(range(states), "unverified")
            found.estimates = dict.fromkeys(range(states), math.nan)
            found.unchecked = f"{custom}, and {found.problem}"
        return found
    unresolved = [str(state) for state, why in found.missing.items() if why == "unresolved"]
    if unresolved:
        places = ", ".join(unresolved)
        found.unchecked = f"{custom}, and {REASONS['unresolved']} at state {places}"
    return found


def _compare_backward(
    found: _Double,
    twin: Network,
    x: Tensor,
    labels: Tensor,
    loss_fn: LossFunction,
    whole: Reference,
    counted: Tensor,
) -> None:
    """Record wrong and unverified gradients in `found`, and estimates of wrong gradients' norms.

    Args:
        twin, x, labels, loss_fn: from `in_double`.
        whole: the `reference` of all samples.
        counted: mask ``(B,)`` of the samples in ``found.truth``.
    """
    truth, own = part_of(whole, counted), (x[counted], labels[counted])
    # Norms are estimated for a mean over `counted`. If the loss averages over all samples, `share`
    # scales them.
    share = 1.0
    if not counted.all():
        share = whole.loss / float(scalar_loss(loss_fn, truth.logits, own[1]))
    for state, how in check_backward(twin, x, labels, loss_fn, whole).items():
        found.missing[state] = "untrue" if how == "untrue" else "unresolved"
        if how == "untrue":
            norm = norms_along_directions(twin, *own, loss_fn, truth, state)
            found.estimates[state] = share * norm
        # If `how` is "small", gradient and differences are near rounding errors: keep the norm.
        elif how == "rough":
            found.estimates[state] = math.nan


def _custom(network: Network, x: Tensor, labels: Tensor, loss_fn: LossFunction) -> str:
    """Name the custom operations between the states and the loss."""

    def run() -> Tensor:
        # A copy: the forward pass may write to its input.
        return scalar_loss(loss_fn, network.chain(x.clone()).logits, labels)

    try:
        return listed(custom_parts(network, run))
    except Exception as error:  # compiled code, for example
        return f"a forward pass that cannot be watched ({first_line(error)})"


def frequencies(network: Network, batches: list[Batch], layer: int) -> Frequencies:
    """Compare mean predictions with class frequencies, and recompute C at ``h_layer`` with a
    refitted bias, which removes the difference.
    """
    passes, half = forward(network, batches), len(batches) // 2
    # Pool the batches: only a difference that all batches share raises the cosine of check C.
    logits = torch.cat([each.logits for each in passes])
    labels = torch.cat([each.labels for each in passes])
    p, y = logits.softmax(dim=-1), F.one_hot(labels, logits.shape[-1])
    # The bias is refitted on the first half of the batches; C is recomputed on the other half.
    first = sum(len(each.labels) for each in passes[:half])
    bias = _refitted_bias(logits[:first], labels[:first])

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits + bias.to(logits), labels)

    # Adding the bias to the logits in the loss gives the gradients that a change of the head's bias
    # would give, and leaves the network alone.
    with untouched(network):
        means = [mean_gradient(reference(network, *batch, loss), layer) for batch in batches[half:]]
    gaps = tuple((p - y).mean(dim=0).tolist())
    return Frequencies(gaps=gaps, refitted=mean_pairwise_cosine(means))


def _refitted_bias(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the bias ``(C,)`` that minimises the cross-entropy of logits ``(N, C)``, in float64.

    At the minimum, mean predictions equal class frequencies. Half a sample is added to every class,
    so that no frequency is 0.
    """
    # A class that does not occur would have a bias of minus infinity.
    counts = torch.bincount(labels, minlength=logits.shape[-1]).double() + 0.5
    targets, bias = counts / counts.sum(), torch.zeros_like(logits[0], requires_grad=True)
    optimiser = torch.optim.LBFGS([bias], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        # LBFGS calls this several times a step, with gradients enabled.
        optimiser.zero_grad()
        loss = torch.logsumexp(logits + bias, dim=-1).mean() - bias @ targets
        loss.backward()
        return loss

    optimiser.step(closure)
    return bias.detach()
