"""Comparison of a network's backward pass with its forward pass: is the reference gradient the derivative of the loss?

It is not where a model replaces its own backward pass: by autograd functions that implement feedback alignment, by
straight-through and surrogate gradients, by ``detach``. Shapes: B batch, d width of a state, M directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from fa_audit.audit.credit_metrics import loss_changes, losses_of_samples
from fa_audit.core.errors import AuditError
from fa_audit.core.progress import following
from fa_audit.core.randomness import generator
from fa_audit.core.vectors import sample_norms
from fa_audit.networks.description import passes_from
from fa_audit.networks.network import Network
from fa_audit.networks.trace import LossFunction, Reference

SAMPLES, CHECKED = 8, 2  # samples of the batch and directions, with which every state is checked
STEPS = (1e-6, 1e-5, 1e-7, 1e-4, 1e-8, 1e-3)  # relative to the state's length, the most likely to decide first
AWAY = 1e-2  # likewise, distance from the state, since kinks and ties lie exactly at states
TOLERANCE = 1e-3  # relative; correct derivatives differ by the square of the step and by the kinks that it crosses
ROUNDING = 1e-14  # of a difference of two losses, relative to them or to the logits
DIRECTIONS, STEP = 32, 1e-6  # for the estimate of a norm: a standard error of an eighth


def check_backward(
    twin: Network, x: Tensor, targets: Tensor, loss_fn: LossFunction, truth: Reference
) -> tuple[list[int], list[int]]:
    """Return the states whose gradient is not the derivative of the loss, and those where float64 cannot resolve it.

    Near every state the loss of a few samples is taken at ``h ± step ||h_l|| v``, with v random unit vectors, and
    compared to what the gradient predicts. One step that float64 resolves and at which they agree is enough: longer
    ones cross kinks, and shorter ones are lost in what the model computes in float32.

    Args:
        twin: the network in float64.
        x, targets, truth: a batch in float64 and its `reference`, of which the first `SAMPLES` are used.
    """
    x, targets, states = x[:SAMPLES], targets[:SAMPLES], [h[:SAMPLES] for h in truth.states]
    passes, starts = passes_from(twin, x, states)
    smallest = truth.logits[:SAMPLES].abs().max().item() * ROUNDING / TOLERANCE

    def loss(state: int, move: Tensor) -> Tensor:
        return loss_fn(passes.logits_from(state, passes.shift(starts[state], move)), targets.clone())

    agree = [
        _agrees(partial(loss, s), _moves(h, s, CHECKED + 1), smallest)
        for s, h in enumerate(following(states, "gradient at state"))
    ]
    return [s for s, found in enumerate(agree) if found is False], [s for s, found in enumerate(agree) if found is None]


def _agrees(loss: Callable[[Tensor], Tensor], moves: Tensor, smallest: float) -> bool | None:
    """Return whether the gradient of `loss` predicts its changes along moves ``(M + 1, B, d)``; None if too small.

    Args:
        moves: as long as the state; the gradient is taken at the last one, shortened.
        smallest: the smallest difference of two losses that is more than rounding.
    """
    base, answer = (AWAY * moves[-1]).requires_grad_(), None
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(loss(base), base)
    predicted = torch.stack([(gradient * move).sum() for move in moves[:-1]])
    for step in STEPS:
        with torch.no_grad():
            ends = [[loss(base + sign * step * move) for sign in (1, -1)] for move in moves[:-1]]
        found = torch.stack([(above - below).reshape(()) / (2 * step) for above, below in ends])
        larger = max(found.norm().item(), predicted.norm().item())
        if not math.isfinite(larger) or step * larger <= max(smallest, ROUNDING / TOLERANCE * float(ends[0][0].abs())):
            continue
        if (found - predicted).norm() <= TOLERANCE * larger:
            return True
        answer = False
    return answer


def norms_along_directions(
    twin: Network, x: Tensor, targets: Tensor, loss_fn: LossFunction, truth: Reference, state: int
) -> float:
    """Estimate median ``||g_l||`` of a mean loss from its changes along random directions, without a backward pass.

    The mean square of a vector along random unit vectors is its squared length over d.

    Returns:
        NaN for a loss that is not the mean or the sum of the losses of its samples.
    """
    passes, starts = passes_from(twin, x, truth.states)
    moves = STEP * _moves(truth.states[state], state, DIRECTIONS)
    try:
        losses = losses_of_samples(loss_fn, truth.logits, targets)
    except AuditError:
        return math.nan
    ends = [loss_changes(passes, state, starts[state], targets, moves, sign, losses) for sign in (1, -1)]
    slopes = (ends[0] - ends[1]) / 2 / moves.norm(dim=-1)
    lengths = (slopes.square().mean(dim=0) * truth.states[state].shape[-1]).sqrt()
    counted = int((~lengths.isnan()).sum())  # a loss ignores the others: it has no gradient there
    return float(lengths.nan_to_num(0).median()) / counted if counted else math.nan


def _moves(h: Tensor, state: int, count: int) -> Tensor:
    """Return random moves of a state ``(B, d)``, ``(count, B, d)``, as long as its vectors, or 1 where they are 0."""
    lengths = sample_norms(h)
    lengths = torch.where(lengths > 0, lengths, 1)
    drawn = torch.randn(count, *h.shape, dtype=h.dtype, generator=generator(0, "audit", "backward", state)).to(h.device)
    return lengths[:, None] * F.normalize(drawn, dim=-1)
