"""Measure credits that a function makes: those of an implementation that this package does not know.

Shapes: B batch, d width, L blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fa_audit.audit.credit_metrics import (
    DEEP,
    CreditReport,
    Draws,
    Passes,
    against_the_loss,
    alignment,
    deep_mean,
    rounded_rho,
)
from fa_audit.core.errors import AuditError, first_line
from fa_audit.core.metrics import Measured, unit
from fa_audit.networks.description import DescribedNetwork, ShiftedPasses, shown
from fa_audit.networks.network import Network
from fa_audit.networks.trace import reference, trace, untouched

CreditFunction = Callable[[nn.Module, Tensor, Tensor, list[Tensor]], Sequence[Tensor]]
SEED = 0  # of random directions and random credits
AGAINST_THE_LOSS = ("rho", "rho_bp", "rho_random", "nudging")
UNKNOWN = {  # what only a method of this package can be asked for
    "residual_ratio": "credits from a function: what a block adds to its state is not known",
    "bridge_residual": "credits from a function: its auxiliary nets are not known",
    "fresh_b_cosine": "credits from a function: its feedback cannot be drawn again",
    "feature_drift": "credits from a function: the network's initialisation is not known",
}


def measure_given_credits(
    function: CreditFunction, model: nn.Module, network: Network, x: Tensor, labels: Tensor
) -> CreditReport:
    """Compute the credit metrics of ``function(model, x, labels, [h_0..h_L]) -> [a_0..a_{L-1}]`` on one batch.

    The credits are asked for once, in the model's own precision; what needs float64 takes the loss, its changes and
    the true gradients from a float64 copy. ``scale`` is the median over samples of ``||a_l|| / ||g_l||``.

    Args:
        model: what `function` is given, in evaluation mode.
        network: the same model as this package sees it.
        x: the batch, on the model's device.
        labels: ``(B,)``.

    Raises:
        AuditError: the function fails, or what it returns are no credits.
    """
    credits = _asked(function, model, network, x, labels)
    with untouched(network):
        gradients = reference(network, x, labels).gradients
        rounded = _rounded(network, x, labels, credits, gradients)
    worth = _against_the_loss(network, x, labels, credits)
    unknown = {name: Draws(None, len(labels), 0, reason) for name, reason in UNKNOWN.items()}
    scales = [{"scale": _scale(a, g)} for a, g in zip(credits, gradients)]
    parts = zip(alignment(credits, gradients), worth, rounded, scales, strict=True)
    blocks = tuple(a | b | c | d | unknown for a, b, c, d in parts)
    deep = {name: deep_mean([block[name] for block in blocks]) for name in DEEP}
    return CreditReport(blocks, deep | {"fresh_b_null": unknown["fresh_b_cosine"]}, {})


def _asked(function: CreditFunction, model: nn.Module, network: Network, x: Tensor, labels: Tensor) -> list[Tensor]:
    """Return the function's credits as vectors ``(B, d)`` in float64; the model and the batch stay as they are."""
    with untouched(network):
        with torch.no_grad():
            states = [h.detach() for h in network(x, return_hidden=True)[1]]
        try:
            with torch.enable_grad():
                found = function(model, x.clone(), labels.clone(), [h.clone() for h in states])
        except Exception as error:  # external code may raise anything
            raise _refused(f"the function fails: {first_line(error)}", len(states) - 1) from error
    if not isinstance(found, list | tuple) or len(found) != len(states) - 1:
        raise _refused(f"found {shown(found)}", len(states) - 1)
    return [_vector(network, layer, a, states[layer]) for layer, a in enumerate(found)]


def _vector(network: Network, layer: int, credit: object, state: Tensor) -> Tensor:
    """Check one credit and return it as a vector.

    Raises:
        AuditError: it is no tensor of finite floating-point numbers of the state's shape or of its vector's.
    """
    shape = network.read(state).shape
    shapes = " or ".join(dict.fromkeys([str(tuple(shape)), str(tuple(state.shape))]))
    known = (torch.float32, torch.float64, state.dtype)
    if not isinstance(credit, Tensor) or credit.shape not in (shape, state.shape) or credit.dtype not in known:
        raise AuditError(
            f"credits: a_{layer}: found {shown(credit)}; expected {shapes} of torch.float32 or torch.float64, a row for"
            f" every sample, in the form of h_{layer} or of the vector that is read of it."
        )
    if bad := int((~credit.isfinite()).sum()):
        raise AuditError(f"credits: a_{layer}: found {bad} values that are NaN or infinite; expected finite numbers.")
    credit = credit.detach().to(state.device)
    return (credit if credit.shape == shape else network.read_gradient(credit)).double()


def _refused(problem: str, blocks: int) -> AuditError:
    return AuditError(
        f"credits: {problem}; expected credits(model, x, y, states) to return a list of {blocks} tensors, a_0 to"
        f" a_{blocks - 1}, one for every block."
    )


def _against_the_loss(network: Network, x: Tensor, labels: Tensor, credits: list[Tensor]) -> list[dict[str, Measured]]:
    """Compute per block what needs float64, or say why that is impossible."""
    try:
        twin = copy.deepcopy(network).double()
        x = x.double() if x.is_floating_point() else x
        with untouched(twin):
            gradients = reference(twin, x, labels).gradients
            passes, starts = _passes(twin, x, gradients)
            return [
                against_the_loss(passes, SEED, layer, starts[layer], labels, credit, gradients[layer])
                for layer, credit in enumerate(credits)
            ]
    except Exception as error:  # external code may raise anything; the audit goes on without this evidence
        reason = f"float64 recomputation failed: {first_line(error)}"
        return [dict.fromkeys(AGAINST_THE_LOSS, Draws(None, len(labels), 0, reason)) for _ in credits]


def _rounded(
    network: Network, x: Tensor, labels: Tensor, credits: list[Tensor], gradients: Sequence[Tensor]
) -> list[dict[str, Measured]]:
    """Compute ``rho`` and its ceiling in the network's own precision."""
    passes, starts = _passes(network, x, gradients)
    parts = enumerate(zip(credits, gradients))
    return [rounded_rho(passes, SEED, layer, starts[layer], labels, a.to(g.dtype), g) for layer, (a, g) in parts]


def _passes(twin: Network, x: Tensor, gradients: Sequence[Tensor]) -> tuple[Passes, list[Tensor]]:
    """Return what runs on from a state, and where each run starts."""
    if isinstance(twin, DescribedNetwork):
        return ShiftedPasses(twin, x), [torch.zeros_like(g) for g in gradients]
    return twin, [h.detach() for h in trace(twin, x, local=True).states]


def _scale(credit: Tensor, gradient: Tensor) -> Measured:
    usable = unit(credit)[1] & unit(gradient)[1]
    n, n_valid = len(usable), int(usable.sum())
    if not n_valid:
        return Measured(None, n, 0, "no sample where both vectors are finite and non-zero")
    lengths = [torch.linalg.vector_norm(rows[usable].double(), dim=-1) for rows in (credit, gradient)]
    return Measured((lengths[0] / lengths[1]).median().item(), n, n_valid)
