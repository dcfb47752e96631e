"""Compare a network's backward pass with its forward pass: is the reference gradient the derivative of the loss?

It is not where a model replaces its own backward pass: autograd functions that implement feedback alignment,
straight-through and surrogate gradients, ``detach``. Shapes: B batch, d width of a state, M directions.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from fa_audit.audit.credit_metrics import loss_changes, losses_of_samples
from fa_audit.core.errors import AuditError
from fa_audit.core.metrics import sample_norms
from fa_audit.core.randomness import generator
from fa_audit.networks.description import passes_from
from fa_audit.networks.network import Network
from fa_audit.networks.trace import LossFunction, Reference, reference

SAMPLES, CHECKED = 16, 4  # of the batch, and directions, by which every state is checked
STEPS = (1e-6, 1e-8)  # in units of the length of a state's vector
TOLERANCE = 1e-3  # relative; derivatives that are right differ by the square of the step, and by kinks that it crosses
ROUNDING = 1e-14  # of a difference of two losses, relative to them or to the logits
DIRECTIONS = 32  # by which a norm is estimated: a standard error of an eighth


def untrue_states(twin: Network, x: Tensor, targets: Tensor, loss_fn: LossFunction) -> list[int]:
    """Return the states whose gradient is not the derivative of the loss.

    The loss of a few samples at ``h_l ± step ||h_l|| v``, with v random unit vectors, is compared to what the gradient
    predicts. A kink that the longest step crosses lies beyond the shortest one.

    Args:
        twin: the network in float64.
        x, targets: a batch in float64, of which the first `SAMPLES` are used.
    """
    x, targets = x[:SAMPLES], targets[:SAMPLES]
    truth = reference(twin, x, targets, loss_fn)
    passes, starts = passes_from(twin, x, truth.states)

    def loss(state: int, move: Tensor) -> Tensor:
        return loss_fn(passes.logits_from(state, passes.shift(starts[state], move)), targets.clone()).detach()

    def differs(state: int, step: float) -> bool:
        moves = _moves(truth, state, CHECKED, step)
        with torch.no_grad():
            ends = torch.stack([torch.stack([loss(state, move), loss(state, -move)]).flatten() for move in moves])
        found = (ends[:, 0] - ends[:, 1]) / 2
        predicted = torch.stack([(truth.gradients[state] * move).sum() for move in moves])
        larger = max(found.norm().item(), predicted.norm().item())
        rounding = max(ends.abs().max().item(), truth.logits.abs().max().item()) * ROUNDING / TOLERANCE
        return bool(ends.isfinite().all() and larger > rounding and (found - predicted).norm() > TOLERANCE * larger)

    return [state for state in range(len(truth.states)) if all(differs(state, step) for step in STEPS)]


def norms_along_directions(
    twin: Network, x: Tensor, targets: Tensor, loss_fn: LossFunction, truth: Reference, state: int
) -> float:
    """Estimate median ``||g_l||`` of a mean loss from its changes along random directions, without a backward pass.

    The mean square of a vector along random unit vectors is its squared length over d.

    Returns:
        NaN for a loss that is not the mean or the sum of the losses of its samples.
    """
    passes, starts = passes_from(twin, x, truth.states)
    moves = _moves(truth, state, DIRECTIONS, STEPS[0])
    try:
        losses = losses_of_samples(loss_fn, truth.logits, targets)
    except AuditError:
        return math.nan
    ends = [loss_changes(passes, state, starts[state], targets, moves, sign, losses) for sign in (1, -1)]
    slopes = (ends[0] - ends[1]) / 2 / moves.norm(dim=-1)
    lengths = (slopes.square().mean(dim=0) * truth.states[state].shape[-1]).sqrt()
    return lengths.median().item() / len(x)


def _moves(truth: Reference, state: int, count: int, step: float) -> Tensor:
    """Return random moves of a state, ``(count, B, d)``, of `step` times its length, or of `step` where that is 0."""
    h = truth.states[state]
    lengths = sample_norms(h)
    lengths = torch.where(lengths > 0, lengths, 1)
    drawn = torch.randn(count, *h.shape, dtype=h.dtype, generator=generator(0, "audit", "backward", state)).to(h.device)
    return step * lengths[:, None] * F.normalize(drawn, dim=-1)
