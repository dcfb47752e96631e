"""Credit metrics: credits against the true gradient, against changes of the loss, and against
chance.

Shapes: B batch, d width of a state, L blocks, M directions. The credit ``a_l`` of block l takes the
place of the gradient at its output ``h_{l+1}``; ``g_l`` is the true gradient at the state ``h_l``,
and ``loss_i`` the loss of sample i. Metrics test ``a_l`` at the block's output, where the gradient
is ``g_{l+1}``. Metrics named ``..._at_input`` test it at the block's input, where the gradient is
``g_l``, as published numbers do. In a block without a skip, ``g_l`` is unrelated to the credit.

The cosines, ``credit_norm`` and metrics named float32 use the credits that trained the network, in
its own precision; metrics that test a direction by its loss use a float64 copy. A value that cannot
be measured is None and has a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from fa_audit.audit.statistics import clamped_cosine, median_of
from fa_audit.core.errors import AuditError, first_line
from fa_audit.core.measured import AT_INPUT, Measured, at_both_sides
from fa_audit.core.randomness import generator
from fa_audit.core.vectors import cosine, mean_of, normalised, sample_norms, unit
from fa_audit.networks.description import DescribedNetwork
from fa_audit.networks.network import Network
from fa_audit.networks.trace import LossFunction
from fa_audit.protocol.evidence import REASONS, Missing

# Unit directions per sample, M.
DIRECTIONS = 32
# Length of the moves with which rho is measured.
EPS = 1e-3
# Root mean square of a nudge over features, whatever the state's norm.
_ETA = 0.01
# Number of draws of random credits, and of fresh feedback, for a null distribution.
DRAWS = 20
# Largest relative difference between a batch's loss and the mean or sum of its samples' losses.
_SAME = 1e-4
# Limit on the entries of perturbed states in one forward pass; more do not fit into the cache.
_AT_ONCE = 2**16
# Suffix of a metric's name -> k. The metric measures the credit a_l at the state h_{l+k}: block l's
# output if k is 1, its input if k is 0.
_SIDES = {"": 1, AT_INPUT: 0}
RESHAPED = "the block changes the shape of its state: the credit does not fit its input"
AGAINST_THE_LOSS = at_both_sides("rho", "rho_bp", "rho_random", "nudging")
_OF_METHODS = ("residual_ratio", "bridge_residual")
IN_DOUBLE = (*AGAINST_THE_LOSS, *_OF_METHODS, *at_both_sides("fresh_b_cosine"))
_OF_REFERENCE = ("cosine", "clamped_cosine", "rho_bp", "rho_bp_float32", "fresh_b_cosine", "scale")
FLOAT32 = (f"rho_float32{AT_INPUT}", f"rho_bp_float32{AT_INPUT}")
DEEP = (*at_both_sides("cosine", "clamped_cosine", "rho", "rho_bp", "nudging"), *FLOAT32)
# Measurements of one block, by name.
Block = dict[str, Measured]
# The `alignment` of every block, for every draw of the feedback.
Fresh = Sequence[Sequence[Block]]
# A function of logits (B, C) and targets that returns the loss of every sample (B,).
Losses = Callable[[Tensor, Tensor], Tensor]
_cross_entropies: Losses = partial(F.cross_entropy, reduction="none")


@dataclass(frozen=True)
class CreditReport:
    """All credit metrics of one run.

    Attributes:
        blocks: the metrics of every block, by name.
        deep: means over the blocks l >= 1, by name.
        drift: relative change of every parameter of the network since its initialisation, by the
            parameter's name.
    """

    blocks: tuple[Block, ...] = ()
    deep: Block = field(default_factory=dict)
    drift: Block = field(default_factory=dict)

    def without(self, missing: Mapping[int, Missing]) -> CreditReport:
        """Return the report with a reason in place of every value that needs the gradient at a
        state in `missing`.
        """
        if not missing or not self.blocks:
            return self
        blocks = []
        lost: Block = {}
        for layer, block in enumerate(self.blocks):
            kept = dict(block)
            # Block l is compared at the state l + step.
            for side, step in _SIDES.items():
                if layer + step not in missing:
                    continue
                reason, null = REASONS[missing[layer + step]], f"fresh_b_null{side}"
                for metric in _OF_REFERENCE:
                    name = metric + side
                    if name in block:
                        kept[name] = absent(block[name], reason)
                # A null averages over all blocks l >= 1: it needs the gradient of each.
                if layer:
                    lost.setdefault(null, absent(self.deep[null], reason))
            blocks.append(kept)
        return replace(self, blocks=tuple(blocks), deep=self.deep | deep_means(blocks) | lost)


def absent(measured: Measured, reason: str) -> Measured:
    """Return the measurement with a reason in place of its value."""
    return replace(measured, value=None, n_valid=0, reason=reason, std=None)


def compared(
    layer: int, credit: Tensor, g: Sequence[Tensor], measure: Callable[[Tensor, int], Block]
) -> Block:
    """Measure a block's credit at the block's output and, as ``..._at_input``, at its input.

    Args:
        layer, credit: the block and its credit.
        g: gradients ``g_0..g_L``; a credit whose shape differs from ``g_layer`` cannot be compared
            at the input.
        measure: called with a credit and the index of a state.
    """
    behind = measure(credit, layer + 1)
    if credit.shape == g[layer].shape:
        before = measure(credit, layer)
    else:
        before = {name: absent(value, RESHAPED) for name, value in behind.items()}
    return behind | {name + AT_INPUT: value for name, value in before.items()}


def losses_of_samples(loss_fn: LossFunction, logits: Tensor, targets: Tensor) -> Losses:
    """Return a function that computes the loss of every sample.

    Raises:
        AuditError: the loss fails on single samples, or the loss of the batch is neither the mean
            nor the sum of its samples' losses.
    """
    if loss_fn is F.cross_entropy:
        return _cross_entropies

    def each(logits: Tensor, targets: Tensor) -> Tensor:
        # The mean over a batch of one sample is that sample's loss.
        pairs = zip(logits.split(1), targets.clone().split(1))
        return torch.stack([loss_fn(*pair).reshape(()) for pair in pairs])

    try:
        whole, found = loss_fn(logits, targets.clone()).item(), each(logits, targets)
    except Exception as error:  # external code may raise anything
        raise AuditError(f"the loss fails on single samples: {first_line(error)}") from error
    # A sample that the loss ignores has the loss NaN.
    known = found[~found.isnan()]
    distances = [abs(whole - known.mean().item()), abs(whole - known.sum().item())]
    if not min(distances) <= _SAME * abs(whole):
        raise AuditError(
            "the loss of a batch is not the mean of its samples' losses, nor their sum (class"
            " weights?)"
        )
    return each


def deep_means(blocks: Sequence[Block]) -> Block:
    """Average each metric in `DEEP` over the blocks l >= 1; runs are compared by these means."""
    measured = blocks[0] if blocks else DEEP
    return {name: deep_mean(blocks, name) for name in DEEP if name in measured}


def nulls(name: str, draws: Sequence[Block], reason: str) -> Block:
    """Return the null distributions of a cosine: mean and standard deviation over draws of fresh
    feedback, at the blocks' outputs and at their inputs.

    Args:
        name: of the null distribution at the outputs.
        draws: for every draw the metrics of a block, or the means of `deep_means`; may be empty.
        reason: why there is no value, if there are no draws.
    """
    found = {}
    for side in _SIDES:
        cosines = [draw[f"cosine{side}"] for draw in draws]
        found[f"{name}{side}"] = over_draws(cosines, reason)
    return found


def alignment(credits: Sequence[Tensor], g: Sequence[Tensor]) -> tuple[Block, ...]:
    """Compare credits ``a_0..a_{L-1}`` with the gradients ``g_0..g_L``, all ``(B, d)``.

    ``clamped_cosine`` is torch's cosine similarity, which clamps small norms; ``cosine`` does not.
    ``credit_norm`` is the median over samples of ``||a_l||``.
    """

    def angles(a: Tensor, state: int) -> Block:
        return {"cosine": cosine(a, g[state]), "clamped_cosine": clamped_cosine(a, g[state])}

    blocks = []
    for layer, a in enumerate(credits):
        norms = sample_norms(a)
        norm = median_of(norms, norms.isfinite(), "no sample with a finite credit")
        blocks.append(compared(layer, a, g, angles) | {"credit_norm": norm})
    return tuple(blocks)


def against_the_loss(
    network: Network,
    seed: int,
    starts: Sequence[Tensor],
    targets: Tensor,
    credits: Sequence[Tensor | None],
    gradients: Sequence[Tensor],
    losses: Losses = _cross_entropies,
    directions: int = DIRECTIONS,
) -> list[Block]:
    """Correlate every credit with true changes of the loss, and nudge states against the credit.

    The true gradient's correlation is the ceiling for credits; random credits give the floor.

    Args:
        network: in float64.
        seed: of the random directions and the random credits.
        starts: the states ``h_0..h_L`` in the blocks' own shapes, such as ``(B, T, d)``.
        targets: one row for each sample.
        credits: ``a_0..a_{L-1}``; None leaves a block out.
        gradients: ``g_0..g_L``, ``(B, d)``.
        directions: M, the number of random directions for each sample.
    """

    # Cached, since most states are needed as a block's output and as the next block's input.
    @cache
    def changes(state: int) -> Tensor:
        moves = unit_directions(seed, state, gradients[state], directions)
        return loss_changes(network, state, starts[state], targets, moves, EPS, losses)

    def worth(credit: Tensor, state: int) -> Block:
        """Measure one credit ``(B, d)`` at the state ``h_state``."""
        moves = unit_directions(seed, state, gradients[state], directions)
        randomness = generator(seed, "audit", "random credit", state)
        # One by one: drawing all at once may give other numbers and so change `rho_random`.
        random = [_gaussian(credit, 1, randomness)[0] for _ in range(DRAWS)]
        correlated = partial(perturbation_correlation, directions=moves, changes=changes(state))
        return {
            "rho": correlated(credit),
            "rho_bp": correlated(gradients[state]),
            "rho_random": over_draws(list(map(correlated, random))),
            "nudging": nudging(network, state, starts[state], targets, credit, _ETA, losses),
        }

    left_out = Measured(None, len(targets), 0, "left out by blocks=")
    blocks = []
    for layer, credit in enumerate(tqdm(credits, "credit of block", leave=False, disable=None)):
        block: Block = dict.fromkeys(AGAINST_THE_LOSS, left_out)
        if credit is not None:
            block = compared(layer, credit, gradients, worth)
        blocks.append(block)
    return blocks


def _gaussian(like: Tensor, count: int, randomness: torch.Generator) -> Tensor:
    """Draw float64 numbers ``(count, B, d)`` from N(0, 1), for the device of `like` ``(B, d)``."""
    drawn = torch.randn(count, *like.shape, dtype=torch.float64, generator=randomness)
    return drawn.to(like.device)


def unit_directions(seed: int, layer: int, like: Tensor, count: int = DIRECTIONS) -> Tensor:
    """Return the random directions in which the state ``h_l`` is moved, the same at every call.

    Returns:
        ``(count, B, d)``, float64: unit vectors for every row of `like` ``(B, d)``.
    """
    randomness = generator(seed, "audit", "directions", layer)
    return F.normalize(_gaussian(like, count, randomness), dim=-1)


@torch.no_grad()
def loss_changes(
    network: Network,
    layer: int,
    h: Tensor,
    targets: Tensor,
    directions: Tensor,
    length: float,
    losses: Losses = _cross_entropies,
) -> Tensor:
    """Compute ``loss_i(h_l + length v) - loss_i(h_l)`` for every direction and sample: ``(M, B)``.

    Args:
        layer: ``l``.
        h: the state ``h_l`` in the block's own shape; `Network.shift` adds ``length v`` to it.
        targets: one row a sample.
        directions: ``v``, ``(M, B, d)``.
        length: the factor of the directions; not relative to the state's norm.
        losses: computes every sample's loss from logits and targets.
    """
    # Several directions make a larger batch, which a model with a `Description` might refuse.
    several = 1 if isinstance(network, DescribedNetwork) else max(1, _AT_ONCE // h.numel())

    def after(deltas: Tensor) -> Tensor:
        times = len(deltas)
        states = h.repeat(times, *[1] * (h.dim() - 1))
        repeated = targets.repeat(times, *[1] * (targets.dim() - 1))
        logits = network.logits_from(layer, network.shift(states, deltas.flatten(0, 1)))
        return losses(logits, repeated).view(times, -1)

    moved = [after(length * some) for some in directions.split(several)]
    return torch.cat(moved) - losses(network.logits_from(layer, h), targets)


def perturbation_correlation(credit: Tensor, directions: Tensor, changes: Tensor) -> Measured:
    """Compute ``rho``, the Pearson correlation of ``<a, v>`` with the true loss change, over
    directions and samples.

    `n` and `n_valid` count pairs of a direction and a sample. The length of the perturbation
    cancels, and so does a positive factor that all credits share. A factor that differs between
    samples does not cancel.

    Args:
        credit: ``a``, ``(B, d)``.
        directions: ``v``, ``(M, B, d)``.
        changes: ``(M, B)``.
    """
    predicted = torch.einsum("mbd,bd->mb", directions, credit.to(directions)).flatten()
    true = changes.flatten()
    usable = predicted.isfinite() & true.isfinite()
    n, n_valid = len(usable), int(usable.sum())
    without_value = partial(Measured, None, n, n_valid)
    if n_valid < 2:
        return without_value("fewer than two pairs of a finite prediction and a finite loss change")
    rows = torch.stack([predicted[usable], true[usable]])
    # Tested before subtracting the mean, which can turn a constant row into rounding errors.
    constant = rows.amin(dim=1) == rows.amax(dim=1)
    if constant[0]:
        return without_value("the credit predicts the same change of loss in every direction")
    if constant[1]:
        return without_value("the loss changes by the same amount in every direction")
    (one, other), _ = unit(rows - rows.mean(dim=1, keepdim=True))
    return Measured((one @ other).item(), n, n_valid)


def nudging(
    network: Network,
    layer: int,
    h: Tensor,
    targets: Tensor,
    credit: Tensor,
    eta: float,
    losses: Losses = _cross_entropies,
) -> Measured:
    """Average over samples ``loss_i(h_l - eta r(a)) - loss_i(h_l)``: negative if the credit lowers
    the loss. r is `normalised`.

    Args:
        layer, h, targets, losses: as in `loss_changes`.
        credit: ``a``, ``(B, d)``; rows that are zero or not finite are left out.
        eta: the nudge's root mean square over features, whatever the state's norm.
    """
    # `normalised` gives all samples' credits one length: only their directions count.
    change = loss_changes(network, layer, h, targets, normalised(credit)[None], -eta, losses)[0]
    usable = unit(credit)[1] & change.isfinite()
    # r shrinks credits far below its floor until the loss, which is rounded, stays the same.
    usable &= change[usable].any()
    reason = "no sample with a finite, non-zero credit whose loss changes and is finite"
    return mean_of(change, usable, reason)


def over_draws(draws: Sequence[Measured], reason: str = "") -> Measured:
    """Compute mean and standard deviation over the draws that have a value.

    Args:
        reason: why there is no value, if there are no draws.
    """
    values = [draw.value for draw in draws if draw.value is not None]
    if not values:
        return Measured(None, len(draws), 0, draws[0].reason if draws else reason)
    known = torch.tensor(values, dtype=torch.float64)
    # torch's std of a single value is NaN.
    std = known.std().item() if len(known) > 1 else None
    return Measured(known.mean().item(), len(draws), len(known), std=std)


def deep_mean(blocks: Sequence[Block], name: str) -> Measured:
    """Average a metric over the blocks l >= 1 that have a value; `n` and `n_valid` count blocks.

    Args:
        blocks: the metrics of every block, ``l = 0`` first.
        name: the metric's name.
    """
    deep = [block[name] for block in blocks[1:]]
    values = [found.value for found in deep if found.value is not None]
    if not values:
        reason = deep[0].reason if deep else "the network has no block l >= 1"
        return Measured(None, len(deep), 0, reason)
    return Measured(sum(values) / len(values), len(deep), len(values))
