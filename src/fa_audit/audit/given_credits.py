"""Measure credits that the caller's function computes, by an implementation outside this package.

Shapes: B batch, d width of a state, L blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.audit.credit_metrics import (
    AGAINST_THE_LOSS,
    DIRECTIONS,
    DRAWS,
    Block,
    CreditReport,
    against_the_loss,
    alignment,
    deep_means,
    losses_of_samples,
    nulls,
    nulls_of_block,
)
from fa_audit.audit.inputs import is_count
from fa_audit.core.errors import AuditError, first_line, shortened
from fa_audit.core.measured import Measured
from fa_audit.core.metrics import median_of
from fa_audit.core.randomness import stream_seed
from fa_audit.core.vectors import WITHOUT_ANGLE, sample_norms, unit
from fa_audit.networks.adapters import OneTensor
from fa_audit.networks.description import passes_from
from fa_audit.networks.network import Network
from fa_audit.networks.trace import LossFunction, in_double, is_dense, reference, shown, untouched

# Of model, x, targets and [h_0..h_L]; `draw` also of a draw's number.
CreditFunction = Callable[..., Sequence[Tensor]]
_MOST_DIRECTIONS = 4096
# The seed of random directions and random credits.
SEED = 0
_NO_DRAW = "no draw= was given: the feedback cannot be drawn again"
# Metrics that need a method of this package.
UNKNOWN = {
    "residual_ratio": "credits from a function: what a block adds to its state is not known",
    "bridge_residual": "credits from a function: its auxiliary nets are not known",
    "feature_drift": "credits from a function: the network's initialisation is not known",
}


@dataclass(frozen=True)
class Given:
    """The functions that compute a caller's credits, and how much of them is measured.

    Attributes:
        credits: ``credits(model, x, y, states) -> [a_0..a_{L-1}]``.
        draw: ``draw(model, x, y, states, number) -> [a_0..a_{L-1}]``, with fresh feedback for every
            number. It may draw from torch's global stream, which the number seeds.
        directions: M, the number of directions in which every state is moved.
        blocks: the blocks whose credits are compared with the loss, which takes nearly all of the
            time; None for all.
    """

    credits: CreditFunction
    draw: CreditFunction | None = None
    directions: int = DIRECTIONS
    blocks: Collection[int] | None = None


def measure_given_credits(
    given: Given,
    model: nn.Module,
    network: Network,
    x: Tensor,
    targets: Tensor,
    loss_fn: LossFunction,
) -> CreditReport:
    """Compute the credit metrics of a function on one batch.

    The function is called once, in the model's own precision. Loss, changes of the loss and true
    gradients come from a float64 copy. ``scale`` is the median over samples of
    ``||a_l|| / ||g_{l+1}||``.

    Args:
        model: passed to the functions, in evaluation mode.
        network: the same model, wrapped as a `Network`.
        x: the batch, on the model's device.
        targets: one row a sample.
        loss_fn: the loss whose gradients and changes are taken.

    Raises:
        AuditError: a function fails, or does not return credits.
    """
    with untouched(network), torch.no_grad():
        states = [h.detach() for h in network(x, return_hidden=True)[1]]
    ask = partial(_asked, model=model, network=network, x=x, targets=targets, states=states)
    credits = ask("credits", given.credits)
    with untouched(network):
        gradients = reference(network, x, targets, loss_fn).gradients
    draws: Iterable[list[Tensor]] = ()
    if given.draw:
        draws = (ask("draw", given.draw, number) for number in range(DRAWS))
    fresh = [alignment(draw, gradients) for draw in _different(draws)]
    worth = _against_the_loss(given, network, x, targets, credits, loss_fn)
    unknown = {name: Measured(None, len(x), 0, reason) for name, reason in UNKNOWN.items()}
    blocks = []
    for layer, aligned in enumerate(alignment(credits, gradients)):
        scale = {"scale": _scale(credits[layer], gradients[layer + 1])}
        null = nulls_of_block(fresh, layer, _NO_DRAW)
        blocks.append(aligned | worth[layer] | scale | null | unknown)
    return CreditReport(tuple(blocks), deep_means(blocks) | nulls(fresh, _NO_DRAW))


def _scale(a: Tensor, g: Tensor) -> Measured:
    both = unit(a)[1] & unit(g)[1]
    return median_of(sample_norms(a) / sample_norms(g), both, WITHOUT_ANGLE)


def checked_credits(
    credits: CreditFunction | None,
    draw: CreditFunction | None,
    directions: Any,
    blocks: Any,
    network: Network,
) -> Given | None:
    """Check the arguments about a caller's credits and bundle them; None without credits.

    Raises:
        AuditError: an argument has the wrong type, or is given without `credits`.
    """
    for name, function in {"credits": credits, "draw": draw}.items():
        if function is not None and not callable(function):
            expected = "expected a function that returns credits"
            raise AuditError(f"{name}: found {shortened(function)}; {expected}.")
    if not is_count(directions) or not 1 <= directions <= _MOST_DIRECTIONS:
        expected = f"expected an integer 1..{_MOST_DIRECTIONS}"
        raise AuditError(f"directions: found {shortened(directions)}; {expected}.")
    if blocks is not None:
        numbers = blocks if isinstance(blocks, Collection) else (blocks,)
        right = numbers is blocks and all(is_count(b) and 0 <= b < network.depth for b in numbers)
        if not right:
            expected = f"expected integers 0..{network.depth - 1}, such as [0, 1]"
            raise AuditError(f"blocks: found {shortened(blocks)}; {expected}.")
    if credits is not None:
        return Given(credits, draw, directions, blocks)
    if draw is not None or blocks is not None:
        name = "draw" if draw else "blocks"
        raise AuditError(f"{name}: found without credits=; expected both.")
    return None


def _asked(
    name: str,
    function: Any,
    *more: int,
    model: nn.Module,
    network: Network,
    x: Tensor,
    targets: Tensor,
    states: list[Tensor],
) -> list[Tensor]:
    """Call a credit function and return vectors ``(B, d)`` in float64; model and batch are
    unchanged.
    """
    blocks = len(states) - 1
    with untouched(network):
        if more:
            _seed_draw(*more)
        try:
            with torch.enable_grad():
                own = getattr(network, "model", None)
                inputs = dict(own.parts(x)) if isinstance(own, OneTensor) else x.clone()
                found = function(model, inputs, targets.clone(), [h.clone() for h in states], *more)
        except Exception as error:  # external code may raise anything
            raise _refused(name, f"the function fails: {first_line(error)}", blocks) from error
    if not isinstance(found, list | tuple) or len(found) != blocks:
        raise _refused(name, f"found {shown(found)}", blocks)
    return [_vector(name, network, layer, a, states[layer + 1]) for layer, a in enumerate(found)]


def _seed_draw(number: int) -> None:
    """Seed torch's global streams by a draw's number, so that the same number gives the same draw."""
    seed = stream_seed(SEED, "draw", number)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def _different(draws: Iterable[list[Tensor]]) -> Iterator[list[Tensor]]:
    """Yield the draws without repetitions: equal draws are not independent."""
    seen = set()
    for credits in draws:
        content = hash(tuple(credit.cpu().numpy().tobytes() for credit in credits))
        if content not in seen:
            yield credits
        seen.add(content)


def _vector(name: str, network: Network, layer: int, credit: Any, state: Tensor) -> Tensor:
    """Check one credit and return it as a vector.

    Raises:
        AuditError: it is not a tensor of finite floating-point numbers of the shape of `state` or
            of its vector.
    """
    shape = network.read(state).shape
    shapes = " or ".join(dict.fromkeys([str(tuple(shape)), str(tuple(state.shape))]))
    right = is_dense(credit) and credit.shape in (shape, state.shape)
    if not right or credit.dtype not in (torch.float32, torch.float64, state.dtype):
        raise AuditError(
            f"{name}: a_{layer}: found {shown(credit)}; expected {shapes} of torch.float32 or "
            "torch.float64, a row for"
            f" every sample, in the form of the block's output h_{layer + 1} or of the vector "
            "that is read of it."
        )
    bad = int((~credit.isfinite()).sum())
    if bad:
        found = f"{name}: a_{layer}: found {bad} values that are NaN or infinite"
        raise AuditError(f"{found}; expected finite numbers.")
    credit = credit.detach().to(state.device)
    return (credit if credit.shape == shape else network.read_gradient(credit)).double()


def _refused(name: str, problem: str, blocks: int) -> AuditError:
    more = ", number" if name == "draw" else ""
    return AuditError(
        f"{name}: {problem}; expected {name}(model, x, y, states{more}) to return a list of "
        f"{blocks} tensors, a_0 to"
        f" a_{blocks - 1}, one for every block."
    )


def _against_the_loss(
    given: Given,
    network: Network,
    x: Tensor,
    targets: Tensor,
    credits: list[Tensor],
    loss_fn: LossFunction,
) -> list[Block]:
    """Compute the metrics in float64 for every block, or record why that is impossible."""
    chosen: list[Tensor | None] = []
    for layer, a in enumerate(credits):
        chosen.append(a if given.blocks is None or layer in given.blocks else None)
    doubled = in_double(network, x, targets, loss_fn)
    try:
        with doubled as (twin, x, targets, loss_fn), untouched(twin):
            truth = reference(twin, x, targets, loss_fn)
            losses = losses_of_samples(loss_fn, truth.logits, targets)
            passes, starts = passes_from(twin, x, truth.states)
            return against_the_loss(
                passes, SEED, starts, targets, chosen, truth.gradients, losses, given.directions
            )
    except AuditError as error:
        reason = str(error)
    except Exception as error:  # external code may raise anything; the audit goes on without this
        reason = f"float64 recomputation failed: {first_line(error)}"
    none = dict.fromkeys(AGAINST_THE_LOSS, Measured(None, len(targets), 0, reason))
    return [dict(none) for _ in credits]
