"""Measure credits against the true gradient, against changes of the loss, and against chance.

Shapes: B batch, d width of a state, L blocks, M directions. The credit ``a_l`` of block l is a direction for its output
``h_{l+1}``; ``g_l`` is the true gradient at the state ``h_l``, and ``loss_i`` the loss of sample i. Every metric
compares ``a_l`` at the block's output, with ``g_{l+1}``. Its twin ``..._at_input`` compares ``a_l`` at the block's
input, with ``g_l``, as published numbers do: without a skip that is unrelated to the credit.

The cosines, ``credit_norm`` and what is called float32 use the credits that trained the network, in its own precision;
everything else is computed on a float64 copy. What cannot be measured is absent with its reason.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.core.checks import UNTRUE
from fa_audit.core.errors import AuditError, first_line
from fa_audit.core.metrics import Measured, clamped_cosine, cosine, median_of, median_ratio, sample_norms, unit
from fa_audit.core.progress import following
from fa_audit.core.randomness import generator
from fa_audit.experiments.paths import AT_INPUT, at_both_sides
from fa_audit.networks.description import Passes
from fa_audit.networks.network import Network
from fa_audit.networks.trace import LossFunction, reference, trace, untouched
from fa_audit.training.learner import Learner, build, normalised
from fa_audit.training.loop import block_credits

DIRECTIONS = 32  # M, unit directions per sample
EPS = 1e-3  # length of a perturbation
ETA = 0.01  # length of a nudge, in units of the state's entries
DRAWS = 20  # of every null
SAME = 1e-4  # relative: the loss of a batch is the mean, or the sum, of the losses of its samples
AT_ONCE = 2**16  # entries of the moved states that run on together: more leave the cache
NORMAL_95 = 1.96  # standard deviations on either side
SIDES = {"": 1, AT_INPUT: 0}  # by suffix, the state that belongs to block l: h_{l+1} or h_l
RESHAPED = "the block changes the shape of its state: its credit has no place at its input"
LEFT_OUT = "left out by blocks="
AGAINST_THE_LOSS = at_both_sides("rho", "rho_bp", "rho_random", "nudging")
IN_DOUBLE = (*AGAINST_THE_LOSS, "residual_ratio", "bridge_residual", *at_both_sides("fresh_b_cosine"))
OF_REFERENCE = ("cosine", "clamped_cosine", "rho_bp", "rho_bp_float32", "fresh_b_cosine", "scale")
IN_FLOAT32 = (f"rho_float32{AT_INPUT}", f"rho_bp_float32{AT_INPUT}")
DEEP = (*at_both_sides("cosine", "clamped_cosine", "rho", "rho_bp", "nudging"), *IN_FLOAT32)
Losses = Callable[[Tensor, Tensor], Tensor]  # of logits (B, C) and targets, the loss of every sample (B,)
Block = dict[str, Measured]  # what is measured of one block, by name
M = TypeVar("M", bound=nn.Module)
cross_entropies: Losses = partial(F.cross_entropy, reduction="none")


@dataclass(frozen=True)
class Draws(Measured):
    """The mean of a number over random draws; `n` and `n_valid` count draws.

    Attributes:
        std: standard deviation of a single draw, ddof 1; None below two draws.
    """

    std: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return where 95 % of single draws lie if they are normal; None below two draws."""
        if self.value is None or self.std is None:
            return None
        return self.value - NORMAL_95 * self.std, self.value + NORMAL_95 * self.std

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, with the spread of the draws."""
        return super().to_dict() | {"std": self.std, "interval": self.interval}


@dataclass(frozen=True)
class CreditReport:
    """All credit metrics of one run.

    Attributes:
        blocks: by name, for every block.
        deep: by name, over the blocks l >= 1.
        drift: relative change of every parameter of the network since its initialisation, by the parameter's name.
    """

    blocks: tuple[Block, ...] = ()
    deep: Block = field(default_factory=dict)
    drift: Block = field(default_factory=dict)

    def without(self, untrue: Sequence[int]) -> CreditReport:
        """Return the report without what compares with the gradient at the states `untrue`, where it is not true."""
        if not untrue or not self.blocks:
            return self

        def kept(layer: int, name: str, value: Measured) -> Measured:
            state = layer + SIDES[AT_INPUT if name.endswith(AT_INPUT) else ""]
            return absent(value, UNTRUE) if state in untrue and name.removesuffix(AT_INPUT) in OF_REFERENCE else value

        blocks = [
            {name: kept(layer, name, value) for name, value in own.items()} for layer, own in enumerate(self.blocks)
        ]
        lost = {f"fresh_b_null{side}": bool(set(untrue) - ({0, 1} if state else {0})) for side, state in SIDES.items()}
        of_draws = {name: absent(self.deep[name], UNTRUE) if gone else self.deep[name] for name, gone in lost.items()}
        return replace(self, blocks=tuple(blocks), deep=deep_means(blocks) | of_draws)


def absent(measured: Measured, reason: str) -> Measured:
    """Return the same measurement without its value, and why."""
    gone = replace(measured, value=None, n_valid=0, reason=reason)
    return replace(gone, std=None) if isinstance(gone, Draws) else gone


def compared(layer: int, credit: Tensor, g: Sequence[Tensor], measure: Callable[[int], Block]) -> Block:
    """Return what `measure` finds at the state behind a block and, as ``..._at_input``, at the one before it.

    Args:
        layer, credit: of the block.
        g: ``g_0..g_L``; a credit of another shape than ``g_layer`` has no place at the block's input.
        measure: of the index of a state.
    """
    behind = measure(layer + 1)
    if credit.shape == g[layer].shape:
        before = measure(layer)
    else:
        before = {name: absent(value, RESHAPED) for name, value in behind.items()}
    return behind | {name + AT_INPUT: value for name, value in before.items()}


def losses_of_samples(loss_fn: LossFunction, logits: Tensor, targets: Tensor) -> Losses:
    """Return the loss of every sample, for a loss that is their mean or their sum.

    Raises:
        AuditError: the loss of this batch is neither.
    """
    if loss_fn is F.cross_entropy:
        return cross_entropies

    def each(logits: Tensor, targets: Tensor) -> Tensor:
        rows = zip(logits.split(1), targets.split(1))
        return torch.stack([loss_fn(*row).reshape(()) for row in rows])

    try:
        whole, found = loss_fn(logits, targets.clone()).item(), each(logits, targets)
    except Exception as error:  # external code may raise anything
        raise AuditError(f"the loss fails on single samples: {first_line(error)}") from error
    known = found[~found.isnan()]  # a sample that the loss ignores has none
    if not min(abs(whole - of.item()) for of in (known.mean(), known.sum())) <= SAME * abs(whole):
        raise AuditError("the loss of a batch is not the mean of the losses of its samples (class weights?)")
    return each


def measure_credits(learner: Learner, x: Tensor, labels: Tensor) -> CreditReport:
    """Compute every credit metric of a run on one batch; the learner is left unchanged, and results are reproducible.

    Args:
        x: the batch, on the learner's device.
        labels: ``(B,)``.
    """
    aligned = credit_alignment(learner, x, labels)
    twin = replace(learner, network=_double(learner.network), state=_double(learner.state))
    with untouched(twin.network):
        worth, fresh = _in_double(twin, x.double(), labels, copy.deepcopy(learner.network).cpu())
    by_name, by_block = feature_drift(learner)
    rounded = rho_in_float32(learner, x, labels)
    own = tuple(
        one | other | single | {"feature_drift": moved}
        for one, other, single, moved in zip(aligned, worth, rounded, by_block, strict=True)
    )
    return CreditReport(own, deep_means(own) | nulls(fresh, _no_null(learner)), by_name)


def deep_means(blocks: Sequence[Block]) -> Block:
    """Average over the blocks l >= 1 what is compared between runs."""
    measured = blocks[0] if blocks else DEEP
    return {name: deep_mean([block[name] for block in blocks]) for name in DEEP if name in measured}


def nulls(fresh: Fresh, reason: str) -> Block:
    """Return over all draws of the feedback the mean over the blocks l >= 1 of their cosines, at both sides."""
    return {
        f"fresh_b_null{side}": over_draws([deep_mean([b[f"cosine{side}"] for b in draw]) for draw in fresh], reason)
        for side in SIDES
    }


def nulls_of_block(fresh: Fresh, layer: int, reason: str) -> Block:
    """Return over all draws of the feedback the cosine of one block, at both sides."""
    return {
        f"fresh_b_cosine{side}": over_draws([draw[layer][f"cosine{side}"] for draw in fresh], reason) for side in SIDES
    }


def _double(module: M) -> M:
    return copy.deepcopy(module).double()


def credit_alignment(learner: Learner, x: Tensor, labels: Tensor) -> tuple[Block, ...]:
    """Compare every block's credit ``a_l`` of a run with backpropagation's gradient, see `alignment`."""
    with untouched(learner.network):
        g = reference(learner.network, x, labels).gradients
        credits = block_credits(learner, x, labels)
    return alignment(credits, g)


def alignment(credits: Sequence[Tensor], g: Sequence[Tensor]) -> tuple[Block, ...]:
    """Compare credits ``a_0..a_{L-1}`` with the gradients ``g_0..g_L``, all ``(B, d)``.

    ``cosine`` is without any epsilon; ``clamped_cosine`` is torch's value of the same. ``credit_norm`` is the median
    over samples of ``||a_l||``.
    """
    return tuple(
        compared(layer, a, g, partial(_angles, a, g)) | {"credit_norm": _norm(a)} for layer, a in enumerate(credits)
    )


def _angles(a: Tensor, g: Sequence[Tensor], state: int) -> Block:
    return {"cosine": cosine(a, g[state]), "clamped_cosine": clamped_cosine(a, g[state])}


def _norm(credit: Tensor) -> Measured:
    norms = sample_norms(credit)
    return median_of(norms, norms.isfinite(), "no sample with a finite credit")


def rho_in_float32(learner: Learner, x: Tensor, labels: Tensor) -> tuple[Block, ...]:
    """Compute ``rho`` and its ceiling at every block's input as published numbers do, in the network's precision.

    There a step of 1e-3 changes a state of norm 1e4 by little more than its rounding error, so that even the true
    gradient does not predict the change of the loss.
    """
    network = learner.network
    with untouched(network):
        truth, credits = reference(network, x, labels), block_credits(learner, x, labels)
        states = [h.detach() for h in trace(network, x, local=True).states]
        rows = []
        for layer, a in enumerate(credits):
            if a.shape != truth.gradients[layer].shape:
                rows.append(dict.fromkeys(IN_FLOAT32, Measured(None, len(labels), 0, RESHAPED)))
                continue
            directions = block_directions(learner.spec.seed, layer, a).to(states[layer].dtype)
            changes = loss_changes(network, layer, states[layer], labels, directions, EPS)
            pair = (a, truth.gradients[layer])
            rows.append({name: perturbation_correlation(v, directions, changes) for name, v in zip(IN_FLOAT32, pair)})
    return tuple(rows)


# --- float64 -------------------------------------------------------------------------------------------------------


Fresh = Sequence[Sequence[Block]]  # the cosines of every block, for every draw of the feedback


def _in_double(twin: Learner, x: Tensor, labels: Tensor, network: Network) -> tuple[list[Block], Fresh]:
    """Compute per block what needs float64, and the cosines under fresh feedback.

    Args:
        twin: the learner in float64.
        network: the trained network as feedback is drawn for it: float32, on the CPU.
    """
    run = trace(twin.network, x, local=True)
    states = [h.detach() for h in run.states]
    gradients = reference(twin.network, x, labels).gradients
    try:
        credits = block_credits(twin, x, labels)
    except Exception as error:  # an external method may require its own precision
        reason = f"float64 recomputation failed: {type(error).__name__} {error}".splitlines()[0]
        none, blocks = Draws(None, len(labels), 0, reason), len(network.blocks)
        return [dict.fromkeys(IN_DOUBLE, none)] * blocks, [[dict.fromkeys(at_both_sides("cosine"), none)] * blocks]
    residuals = bridge_residuals(twin, x, labels)
    fresh = fresh_feedback_cosines(twin, x, labels, gradients, network)
    worth = against_the_loss(twin.network, twin.spec.seed, states, labels, credits, gradients)
    for layer, block in enumerate(worth):
        ratio = median_ratio(*(twin.network.read(part) for part in (run.residuals[layer].detach(), states[layer])))
        block |= {"residual_ratio": ratio, "bridge_residual": residuals[layer]}
        block |= nulls_of_block(fresh, layer, _no_null(twin))
    return worth, fresh


def against_the_loss(
    network: Passes,
    seed: int,
    starts: Sequence[Tensor],
    targets: Tensor,
    credits: Sequence[Tensor | None],
    gradients: Sequence[Tensor],
    losses: Losses = cross_entropies,
    directions: int = DIRECTIONS,
) -> list[Block]:
    """Correlate every credit with true loss changes, with ceiling and floor, and nudge states along it.

    Args:
        network: in float64.
        seed: of the random directions.
        starts: the whole states ``h_0..h_L``; of a described model zeros ``(B, d)``, how far its vectors are moved.
        targets: a row for every sample.
        credits: ``a_0..a_{L-1}``; None for a block that is left out.
        gradients: ``g_0..g_L``, ``(B, d)``.
        directions: M.
    """

    @cache
    def changes(state: int) -> Tensor:
        moves = block_directions(seed, state, gradients[state], directions)
        return loss_changes(network, state, starts[state], targets, moves, EPS, losses)

    def at(state: int, credit: Tensor) -> Block:
        """Measure one credit at the state ``h_state``."""
        moves = block_directions(seed, state, gradients[state], directions)
        randomness = generator(seed, "audit", "random credit", state)
        random = [_gaussian(credit, 1, randomness)[0] for _ in range(DRAWS)]
        correlated = partial(perturbation_correlation, directions=moves, changes=changes(state))
        return {
            "rho": correlated(credit),
            "rho_bp": correlated(gradients[state]),
            "rho_random": over_draws(list(map(correlated, random))),
            "nudging": nudging(network, state, starts[state], targets, credit, ETA, losses),
        }

    none: Block = dict.fromkeys(AGAINST_THE_LOSS, Draws(None, len(targets), 0, LEFT_OUT))
    return [
        none if credit is None else compared(layer, credit, gradients, partial(at, credit=credit))
        for layer, credit in enumerate(following(credits, "credit of block"))
    ]


def _gaussian(like: Tensor, count: int, randomness: torch.Generator) -> Tensor:
    """Draw ``(count, B, d)`` float64 numbers from N(0, 1), for every row of `like` and on its device."""
    return torch.randn(count, *like.shape, dtype=torch.float64, generator=randomness).to(like.device)


def block_directions(seed: int, layer: int, like: Tensor, count: int = DIRECTIONS) -> Tensor:
    """Return the directions in which the state ``h_l`` is moved, the same at every call: ``(M, B, d)``, float64."""
    return unit_directions(like, generator(seed, "audit", "directions", layer), count)


def unit_directions(like: Tensor, randomness: torch.Generator, count: int = DIRECTIONS) -> Tensor:
    """Draw `count` random unit directions for every row of `like` ``(B, d)``: ``(count, B, d)``, float64."""
    return F.normalize(_gaussian(like, count, randomness), dim=-1)


@torch.no_grad()
def loss_changes(
    network: Passes,
    layer: int,
    h: Tensor,
    targets: Tensor,
    directions: Tensor,
    length: float,
    losses: Losses = cross_entropies,
) -> Tensor:
    """Compute ``loss_i(h_l + length v) - loss_i(h_l)`` for every direction and sample: ``(M, B)``.

    Args:
        layer: ``l``.
        h: the whole state ``h_l``; its vector is moved.
        targets: a row for every sample.
        directions: ``v``, ``(M, B, d)``.
        length: in units of the state.
        losses: of every sample.
    """
    several = max(1, AT_ONCE // h.numel()) if isinstance(network, Network) else 1

    def after(deltas: Tensor) -> Tensor:
        states, repeated = (part.repeat(len(deltas), *[1] * (part.dim() - 1)) for part in (h, targets))
        logits = network.logits_from(layer, network.shift(states, deltas.flatten(0, 1)))
        return losses(logits, repeated).view(len(deltas), -1)

    moved = [after(length * some) for some in directions.split(several)]
    return torch.cat(moved) - losses(network.logits_from(layer, h), targets)


def perturbation_correlation(credit: Tensor, directions: Tensor, changes: Tensor) -> Measured:
    """Compute ``rho``, the Pearson correlation over directions and samples of ``<a, v>`` with the true loss change.

    `n` and `n_valid` count pairs. The length of the perturbation cancels, and so does any one positive factor of all
    credits; how credits compare between samples does not.

    Args:
        credit: ``a``, ``(B, d)``.
        directions: ``v``, ``(M, B, d)``.
        changes: ``(M, B)``.
    """
    predicted = torch.einsum("mbd,bd->mb", directions, credit.to(directions)).flatten()
    return _pearson(predicted, changes.flatten())


def _pearson(predicted: Tensor, true: Tensor) -> Measured:
    usable = predicted.isfinite() & true.isfinite()
    n, n_valid = len(usable), int(usable.sum())
    if n_valid < 2:
        return Measured(None, n, n_valid, "fewer than two pairs of a finite prediction and a finite loss change")
    if _constant(predicted[usable]):
        return Measured(None, n, n_valid, "the credit predicts the same change of loss in every direction")
    if _constant(true[usable]):
        return Measured(None, n, n_valid, "the loss changes by the same amount in every direction")
    rows = torch.stack([predicted[usable], true[usable]])
    (one, other), _ = unit(rows - rows.mean(dim=1, keepdim=True))
    return Measured((one @ other).item(), n, n_valid)


def _constant(values: Tensor) -> bool:
    return bool(values.min() == values.max())


def nudging(
    network: Passes,
    layer: int,
    h: Tensor,
    targets: Tensor,
    credit: Tensor,
    eta: float,
    losses: Losses = cross_entropies,
) -> Measured:
    """Average over samples ``loss_i(h_l - eta r(a)) - loss_i(h_l)``: negative where the credit lowers the loss.

    Args:
        layer, h, targets, losses: as in `loss_changes`.
        credit: ``a``, ``(B, d)``; rows that are zero or not finite nudge nowhere and are left out.
        eta: the nudge's root mean square over features, in units of the state.
    """
    change = loss_changes(network, layer, h, targets, normalised(credit)[None], -eta, losses)[0]
    return _mean(
        change, unit(credit)[1] & change.isfinite(), "no sample with a finite, non-zero credit and finite losses"
    )


def _mean(values: Tensor, usable: Tensor, reason: str) -> Measured:
    """Average the usable values ``(B,)``, or give the reason why there is none."""
    n, n_valid = len(values), int(usable.sum())
    return Measured(values[usable].mean().item(), n, n_valid) if n_valid else Measured(None, n, 0, reason)


def bridge_residuals(twin: Learner, x: Tensor, labels: Tensor) -> tuple[Measured, ...]:
    """Average over samples, per block, how far the method's auxiliary net is from its target."""
    network, randomness = twin.network, generator(twin.spec.seed, "audit", "bridge residual")
    run = trace(network, x, local=True)
    residuals = twin.method.bridge_residual(network, run, labels, twin.state, randomness)
    if residuals is None:
        return (Measured(None, len(labels), 0, "the method has no auxiliary net"),) * len(network.blocks)
    return tuple(_mean(r, r.isfinite(), "no sample with a finite residual") for r in residuals)


# --- fresh feedback ------------------------------------------------------------------------------------------------


def fresh_feedback_cosines(
    twin: Learner, x: Tensor, labels: Tensor, gradients: Sequence[Tensor], network: Network
) -> Fresh:
    """Compute every block's cosines for `DRAWS` fresh draws of the method's state.

    Empty for methods without random feedback.

    Args:
        gradients: ``g_0..g_L``, each ``(B, d)``.
        network: the trained network as `init_state` expects it: float32, on the CPU.
    """
    if not twin.method.random_feedback:
        return []
    draws = []
    for draw in range(DRAWS):
        state = twin.method.init_state(network, generator(twin.spec.seed, "audit", "feedback", draw))
        credits = block_credits(replace(twin, state=state.double().to(x.device)), x, labels)
        draws.append(cosines(credits, gradients))
    return draws


def cosines(credits: Sequence[Tensor], g: Sequence[Tensor]) -> list[Block]:
    """Return every block's cosine at both sides."""
    return [compared(layer, a, g, partial(_cosine, a, g)) for layer, a in enumerate(credits)]


def _cosine(a: Tensor, g: Sequence[Tensor], state: int) -> Block:
    return {"cosine": cosine(a, g[state])}


def _no_null(learner: Learner) -> str:
    """Explain why no draw of the feedback has a value."""
    return "no draw has a value" if learner.method.random_feedback else "the method has no random feedback"


def over_draws(draws: Sequence[Measured], reason: str = "no draw has a value") -> Draws:
    """Compute mean and standard deviation over the draws that have a value.

    Args:
        reason: why there is no value if no draw has one and none says why.
    """
    values = torch.tensor([draw.value for draw in draws if draw.value is not None], dtype=torch.float64)
    n, n_valid = len(draws), len(values)
    if not n_valid:
        return Draws(None, n, 0, draws[0].reason if draws else reason)
    return Draws(values.mean().item(), n, n_valid, std=values.std().item() if n_valid > 1 else None)


def deep_mean(blocks: Sequence[Measured]) -> Measured:
    """Average over the blocks l >= 1 that have a value; `n` and `n_valid` count blocks.

    Args:
        blocks: one entry per block, ``l = 0`` first.
    """
    deep = blocks[1:]
    values = [block.value for block in deep if block.value is not None]
    if not values:
        reason = deep[0].reason if deep else "the network has no block l >= 1"
        return Measured(None, len(deep), 0, reason)
    return Measured(sum(values) / len(values), len(deep), len(values))


# --- drift ---------------------------------------------------------------------------------------------------------


def feature_drift(learner: Learner) -> tuple[dict[str, Measured], tuple[Measured, ...]]:
    """Measure how far the network has moved since its initialisation: by parameter, and by block as a whole.

    The initialisation is built again from the specification, bit by bit.
    """
    untrained = build(learner.spec, learner.image_shape, learner.network.classes, learner.method).network
    before, after = (dict(network.named_parameters()) for network in (untrained, learner.network))
    by_name = {name: drift(before[name], parameter) for name, parameter in after.items()}
    pairs = zip(untrained.blocks, learner.network.blocks, strict=True)
    return by_name, tuple(drift(_flat(one.parameters()), _flat(other.parameters())) for one, other in pairs)


def _flat(parameters: Iterable[Tensor]) -> Tensor:
    return torch.cat([torch.empty(0), *(p.detach().cpu().flatten() for p in parameters)])


def drift(before: Tensor, after: Tensor) -> Measured:
    """Compute ``||W - W_0||_F / ||W_0||_F`` of two tensors in float64; `n` and `n_valid` count their entries."""
    before, after = (tensor.detach().cpu().double().flatten() for tensor in (before, after))
    finite = before.isfinite() & after.isfinite()
    n, n_valid = len(finite), int(finite.sum())
    start = torch.linalg.vector_norm(before).item()
    if n_valid < n:
        return Measured(None, n, n_valid, "an entry is not finite")
    if not start:
        return Measured(None, n, n_valid, "zero at initialisation")
    return Measured(torch.linalg.vector_norm(after - before).item() / start, n, n_valid)
