"""Measure the credits of a trained run: against the gradient, against changes of the loss, and against chance.

Shapes: B batch, d width, L blocks, M directions. ``a_l`` is the credit of block l, ``g_l`` the true gradient at its
input ``h_l``, ``CE_i`` the cross-entropy of sample i. The cosines, ``credit_norm`` and what is called float32 use the
credits that trained the network, in its own precision; everything else is computed on a float64 copy. What cannot be
measured is absent with its reason.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.core.metrics import Measured, clamped_cosine, cosine, median_of, median_ratio, sample_norms, unit
from fa_audit.core.randomness import generator
from fa_audit.networks.description import ShiftedPasses
from fa_audit.networks.network import Network
from fa_audit.networks.trace import reference, trace, untouched
from fa_audit.training.learner import Learner, build, normalised
from fa_audit.training.loop import block_credits

DIRECTIONS = 32  # M, unit directions per sample
EPS = 1e-3  # length of a perturbation
ETA = 0.01  # length of a nudge, in units of the state's entries
DRAWS = 20  # of every null
AT_ONCE = 2**16  # entries of the moved states that run on together: more leave the cache
NORMAL_95 = 1.96  # standard deviations on either side
IN_DOUBLE = ("rho", "rho_bp", "rho_random", "nudging", "residual_ratio", "bridge_residual", "fresh_b_cosine")
Passes = Network | ShiftedPasses  # what runs on from a state
DEEP = ("cosine", "clamped_cosine", "rho", "rho_bp", "rho_float32", "rho_bp_float32", "nudging")


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

    blocks: tuple[dict[str, Measured], ...]
    deep: dict[str, Measured]
    drift: dict[str, Measured]


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
    null = over_draws([deep_mean(draw) for draw in fresh], _no_null(learner))
    deep = {name: deep_mean([block[name] for block in own]) for name in DEEP} | {"fresh_b_null": null}
    return CreditReport(own, deep, by_name)


def _double(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).double()


def credit_alignment(learner: Learner, x: Tensor, labels: Tensor) -> tuple[dict[str, Measured], ...]:
    """Compare every block's credit ``a_l`` of a run with backpropagation's gradient, see `alignment`."""
    with untouched(learner.network):
        g = reference(learner.network, x, labels).gradients
        credits = block_credits(learner, x, labels)
    return alignment(credits, g)


def alignment(credits: Sequence[Tensor], g: Sequence[Tensor]) -> tuple[dict[str, Measured], ...]:
    """Compare credits ``a_0..a_{L-1}`` with the gradients ``g_0..g_L``, all ``(B, d)``.

    ``cosine`` compares ``a_l`` with ``g_l`` at the block's input, which is what published numbers do, without any
    epsilon; ``clamped_cosine`` is torch's value of the same; ``cosine_at_output`` compares it with ``g_{l+1}``,
    the true gradient of the block's output. ``credit_norm`` is the median over samples of ``||a_l||``.
    """
    return tuple(
        {
            "cosine": cosine(a, g[layer]),
            "clamped_cosine": clamped_cosine(a, g[layer]),
            "cosine_at_output": cosine(a, g[layer + 1]),
            "credit_norm": _norm(a),
        }
        for layer, a in enumerate(credits)
    )


def _norm(credit: Tensor) -> Measured:
    norms = sample_norms(credit)
    return median_of(norms, norms.isfinite(), "no sample with a finite credit")


def rho_in_float32(learner: Learner, x: Tensor, labels: Tensor) -> tuple[dict[str, Measured], ...]:
    """Compute ``rho`` and its ceiling along the same directions as published numbers do, in the network's precision.

    There a step of 1e-3 changes a state of norm 1e4 by little more than its rounding error, so that even the true
    gradient does not predict the change of the loss.
    """
    network = learner.network
    with untouched(network):
        truth, credits = reference(network, x, labels), block_credits(learner, x, labels)
        states = [h.detach() for h in trace(network, x, local=True).states]
        return tuple(
            rounded_rho(network, learner.spec.seed, layer, states[layer], labels, a, truth.gradients[layer])
            for layer, a in enumerate(credits)
        )


def rounded_rho(
    network: Passes, seed: int, layer: int, h: Tensor, labels: Tensor, credit: Tensor, gradient: Tensor
) -> dict[str, Measured]:
    """Correlate a credit and the true gradient with the loss changes of a network in its own precision.

    Args:
        network, seed, layer, h, labels, credit, gradient: as in `against_the_loss`.
    """
    directions = block_directions(seed, layer, credit).to(h.dtype)
    changes = loss_changes(network, layer, h, labels, directions, EPS)
    return {
        "rho_float32": perturbation_correlation(credit, directions, changes),
        "rho_bp_float32": perturbation_correlation(gradient, directions, changes),
    }


# --- float64 -------------------------------------------------------------------------------------------------------


Fresh = list[tuple[Measured, ...]]  # cosine of every block, for every draw of the feedback


def _in_double(twin: Learner, x: Tensor, labels: Tensor, network: Network) -> tuple[list[dict[str, Measured]], Fresh]:
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
        absent = Draws(None, len(labels), 0, reason)
        return [dict.fromkeys(IN_DOUBLE, absent) for _ in network.blocks], [(absent,) * len(network.blocks)]
    residuals = bridge_residuals(twin, x, labels)
    fresh = fresh_feedback_cosines(twin, x, labels, gradients, network)
    worth, seed = [], twin.spec.seed
    for layer, credit in enumerate(credits):
        of_block = against_the_loss(twin.network, seed, layer, states[layer], labels, credit, gradients[layer])
        null = over_draws([draw[layer] for draw in fresh], _no_null(twin))
        ratio = median_ratio(*(twin.network.read(part) for part in (run.residuals[layer].detach(), states[layer])))
        own = {"residual_ratio": ratio, "bridge_residual": residuals[layer], "fresh_b_cosine": null}
        worth.append(of_block | own)
    return worth, fresh


def against_the_loss(
    network: Passes,
    seed: int,
    layer: int,
    h: Tensor,
    labels: Tensor,
    credit: Tensor,
    gradient: Tensor,
) -> dict[str, Measured]:
    """Correlate a credit with true loss changes at ``h_l``, with ceiling and floor, and nudge the state along it.

    Args:
        network: in float64.
        seed: of the random directions.
        layer: ``l``.
        h: the whole state ``h_l``; for a described model zeros ``(B, d)``, how far its vector is moved.
        labels: ``(B,)``.
        credit, gradient: ``a_l`` and ``g_l``, ``(B, d)``.
    """
    directions = block_directions(seed, layer, credit)
    changes = loss_changes(network, layer, h, labels, directions, EPS)
    randomness = generator(seed, "audit", "random credit", layer)
    floor = [perturbation_correlation(_gaussian(credit, 1, randomness)[0], directions, changes) for _ in range(DRAWS)]
    return {
        "rho": perturbation_correlation(credit, directions, changes),
        "rho_bp": perturbation_correlation(gradient, directions, changes),
        "rho_random": over_draws(floor),
        "nudging": nudging(network, layer, h, labels, credit, ETA),
    }


def _gaussian(like: Tensor, count: int, randomness: torch.Generator) -> Tensor:
    """Draw ``(count, B, d)`` float64 numbers from N(0, 1), for every row of `like` and on its device."""
    return torch.randn(count, *like.shape, dtype=torch.float64, generator=randomness).to(like.device)


def block_directions(seed: int, layer: int, like: Tensor) -> Tensor:
    """Return the directions in which the state ``h_l`` is moved, the same at every call: ``(M, B, d)``, float64."""
    return unit_directions(like, generator(seed, "audit", "directions", layer))


def unit_directions(like: Tensor, randomness: torch.Generator, count: int = DIRECTIONS) -> Tensor:
    """Draw `count` random unit directions for every row of `like` ``(B, d)``: ``(count, B, d)``, float64."""
    return F.normalize(_gaussian(like, count, randomness), dim=-1)


@torch.no_grad()
def loss_changes(network: Passes, layer: int, h: Tensor, labels: Tensor, directions: Tensor, length: float) -> Tensor:
    """Compute ``CE_i(h_l + length v) - CE_i(h_l)`` for every direction and sample: ``(M, B)``.

    Args:
        layer: ``l``.
        h: the whole state ``h_l``; its vector is moved.
        labels: ``(B,)``.
        directions: ``v``, ``(M, B, d)``.
        length: in units of the state.
    """
    unmoved = _losses_from(network, layer, h, labels)
    several = max(1, AT_ONCE // h.numel()) if isinstance(network, Network) else 1
    moved = [_losses_after(network, layer, h, labels, length * some) for some in directions.split(several)]
    return torch.cat(moved) - unmoved


def _losses_after(network: Passes, layer: int, h: Tensor, labels: Tensor, deltas: Tensor) -> Tensor:
    """Compute every sample's cross-entropy for several moves ``(m, B, d)`` of its state in one pass: ``(m, B)``."""
    count = len(deltas)
    states = h.repeat(count, *[1] * (h.dim() - 1))
    losses = _losses_from(network, layer, network.shift(states, deltas.flatten(0, 1)), labels.repeat(count))
    return losses.view(count, -1)


def _losses_from(network: Passes, layer: int, h: Tensor, labels: Tensor) -> Tensor:
    """Compute every sample's cross-entropy ``(B,)`` from the state ``h_l`` on."""
    return F.cross_entropy(network.logits_from(layer, h), labels, reduction="none")


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


def nudging(network: Passes, layer: int, h: Tensor, labels: Tensor, credit: Tensor, eta: float) -> Measured:
    """Compute the mean over samples of ``CE(h_l - eta r(a_l)) - CE(h_l)``: negative where the credit lowers the loss.

    Args:
        layer, h, labels: as in `loss_changes`.
        credit: ``a_l``, ``(B, d)``; rows that are zero or not finite nudge nowhere and are left out.
        eta: the nudge's root mean square over features, in units of the state.
    """
    change = loss_changes(network, layer, h, labels, normalised(credit)[None], -eta)[0]
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
    """Compute every block's cosine of ``a_l`` with ``g_l`` for `DRAWS` fresh draws of the method's state.

    Empty for methods without random feedback.

    Args:
        gradients: ``g_0..g_L``, each ``(B, d)``.
        network: the trained network as `init_state` expects it: float32, on the CPU.
    """
    if not twin.method.random_feedback:
        return []
    cosines = []
    for draw in range(DRAWS):
        state = twin.method.init_state(network, generator(twin.spec.seed, "audit", "feedback", draw))
        credits = block_credits(replace(twin, state=state.double().to(x.device)), x, labels)
        cosines.append(tuple(cosine(a, g) for a, g in zip(credits, gradients)))
    return cosines


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
