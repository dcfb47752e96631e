"""Measure credits that a caller's function returns, from an implementation outside this package.

Shapes: B batch, d width of a state, L blocks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.audit.credit_metrics import (
    AGAINST_THE_LOSS,
    DRAWS,
    Block,
    CreditReport,
    against_the_loss,
    alignment,
    deep_means,
    losses_of_samples,
    nulls,
)
from fa_audit.audit.inputs import CreditFunction
from fa_audit.audit.statistics import median_of
from fa_audit.core.errors import AuditError, first_line
from fa_audit.core.measured import Measured
from fa_audit.core.randomness import stream_seed
from fa_audit.core.vectors import WITHOUT_ANGLE, sample_norms, unit
from fa_audit.networks.description import starting_states
from fa_audit.networks.network import Network
from fa_audit.networks.states import OneTensor
from fa_audit.networks.trace import LossFunction, in_double, is_dense, reference, shown, untouched

# The seed of random directions and random credits.
SEED = 0
_NO_DRAW = "no draw= was given: the feedback cannot be drawn again"
# Metrics that need a method of this package, and why they have no value here.
UNKNOWN = {
    "residual_ratio": "credits from a function: what a block adds to its state is not known",
    "bridge_residual": "credits from a function: its auxiliary nets are not known",
    "feature_drift": "credits from a function: the network's initialisation is not known",
}


def measure_given_credits(
    credits: CreditFunction,
    model: nn.Module,
    network: Network,
    x: Tensor,
    targets: Tensor,
    loss_fn: LossFunction,
    draw: CreditFunction | None,
    directions: int,
    blocks: Collection[int] | None,
) -> CreditReport:
    """Compute the metrics of the credits that a function returns on one batch.

    The function is called once. Cosines and ``scale`` use gradients in the model's own precision;
    metrics of changes of the loss come from a float64 copy. ``scale`` is the median over samples of
    ``||a_l|| / ||g_{l+1}||``.

    Args:
        credits: ``credits(model, x, y, states) -> [a_0..a_{L-1}]``.
        model: passed to the functions, in evaluation mode.
        network: the same model, wrapped as a `Network`.
        x: the batch, on the model's device.
        targets: one row for each sample.
        loss_fn: the loss whose gradients and changes are taken.
        draw: ``draw(model, x, y, states, number) -> [a_0..a_{L-1}]``, with fresh feedback for every
            number. It may draw from torch's global stream, which the number seeds.
        directions: M, the number of directions in which every state is moved.
        blocks: the blocks whose credits are compared with changes of the loss, which takes nearly
            all of the time; None for all.

    Raises:
        AuditError: a function fails, or does not return credits.
    """
    with untouched(network):
        states = starting_states(network, x)
    caller = _Caller(model, network, x, targets, states)
    found = caller.ask("credits", credits)
    with untouched(network):
        # In the model's own precision, like the credits.
        gradients = reference(network, x, targets, loss_fn).gradients
    fresh, seen = [], set()
    for number in range(DRAWS):
        if draw is None:
            break
        drawn = caller.ask("draw", draw, number)
        # Equal draws count once: a function may ignore the number of the draw.
        content = hash(tuple(credit.cpu().numpy().tobytes() for credit in drawn))
        if content not in seen:
            fresh.append(alignment(drawn, gradients))
        seen.add(content)
    chosen = [a if blocks is None or layer in blocks else None for layer, a in enumerate(found)]
    worth = _against_the_loss(network, x, targets, chosen, loss_fn, directions)
    unknown = {name: Measured(None, len(x), 0, reason) for name, reason in UNKNOWN.items()}
    measured = []
    for layer, aligned in enumerate(alignment(found, gradients)):
        a, g = found[layer], gradients[layer + 1]
        usable = unit(a)[1] & unit(g)[1]
        scale = median_of(sample_norms(a) / sample_norms(g), usable, WITHOUT_ANGLE)
        null = nulls("fresh_b_cosine", [drawn[layer] for drawn in fresh], _NO_DRAW)
        measured.append(aligned | worth[layer] | {"scale": scale} | null | unknown)
    null = nulls("fresh_b_null", list(map(deep_means, fresh)), _NO_DRAW)
    return CreditReport(tuple(measured), deep_means(measured) | null)


@dataclass(frozen=True)
class _Caller:
    """Call the user's functions on one batch, without changing the model or the batch."""

    model: nn.Module
    network: Network
    x: Tensor
    targets: Tensor
    states: list[Tensor]

    def ask(self, name: str, function: CreditFunction, *number: int) -> list[Tensor]:
        """Return a function's credits as vectors ``(B, d)`` in float64.

        Raises:
            AuditError: the function fails, or does not return a valid credit for every block.
        """
        blocks = len(self.states) - 1
        numbered = ", number" if number else ""
        expected = (
            f"expected {name}(model, x, y, states{numbered}) to return a list of {blocks} tensors,"
            f" a_0 to a_{blocks - 1}, one for every block"
        )
        with untouched(self.network):
            if number:
                _seed_draw(*number)
            try:
                # The function may take gradients, and write to what it is given.
                with torch.enable_grad():
                    copies = [h.clone() for h in self.states]
                    found = function(
                        self.model, self._inputs(), self.targets.clone(), copies, *number
                    )
            except Exception as error:  # external code may raise anything
                failure = f"the function fails: {first_line(error)}"
                raise AuditError(f"{name}: {failure}; {expected}.") from error
        if not isinstance(found, list | tuple) or len(found) != blocks:
            raise AuditError(f"{name}: found {shown(found)}; {expected}.")
        return [self._vector(name, layer, credit) for layer, credit in enumerate(found)]

    def _inputs(self) -> Any:
        """Return a copy of the inputs, in the form in which the caller gave them."""
        own = getattr(self.network, "model", None)
        return own.parts(self.x) if isinstance(own, OneTensor) else self.x.clone()

    def _vector(self, name: str, layer: int, credit: Any) -> Tensor:
        """Check one credit and return it as a vector.

        Raises:
            AuditError: the credit has a wrong type or shape, or numbers that are not finite.
        """
        state = self.states[layer + 1]
        shape = self.network.read(state).shape
        shapes = " or ".join(dict.fromkeys([str(tuple(shape)), str(tuple(state.shape))]))
        right = is_dense(credit) and credit.shape in (shape, state.shape)
        if not right or credit.dtype not in (torch.float32, torch.float64, state.dtype):
            raise AuditError(
                f"{name}: a_{layer}: found {shown(credit)}; expected {shapes} of torch.float32,"
                f" torch.float64 or the type of the block's output h_{layer + 1}. The shape must be"
                " that of this output, or of the vector read from it."
            )
        bad = int((~credit.isfinite()).sum())
        if bad:
            found = f"{name}: a_{layer}: found {bad} values that are NaN or infinite"
            raise AuditError(f"{found}; expected finite numbers.")
        credit = credit.detach().to(state.device)
        return (credit if credit.shape == shape else self.network.read_gradient(credit)).double()


def _seed_draw(number: int) -> None:
    """Seed torch's global streams by a draw's number; the same number gives the same draw."""
    seed = stream_seed(SEED, "draw", number)
    torch.default_generator.manual_seed(seed)
    # Before CUDA starts, torch would queue this seed in place of the caller's.
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def _against_the_loss(
    network: Network,
    x: Tensor,
    targets: Tensor,
    credits: list[Tensor | None],
    loss_fn: LossFunction,
    directions: int,
) -> list[Block]:
    """Compute every block's metrics of `AGAINST_THE_LOSS` in float64, or record why that fails."""
    double = in_double(network, x, targets, loss_fn)
    try:
        with double as (twin, x, targets, loss_fn), untouched(twin):
            truth = reference(twin, x, targets, loss_fn)
            losses = losses_of_samples(loss_fn, truth.logits, targets)
            starts = starting_states(twin, x)
            return against_the_loss(
                twin, SEED, starts, targets, credits, truth.gradients, losses, directions
            )
    except Exception as error:  # external code may raise anything; the audit goes on without this
        reason = f"float64 recomputation failed: {first_line(error)}"
        if isinstance(error, AuditError):
            reason = str(error)
    none = dict.fromkeys(AGAINST_THE_LOSS, Measured(None, len(targets), 0, reason))
    return [none] * len(credits)
