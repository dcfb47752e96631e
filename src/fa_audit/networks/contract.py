"""Describe external models that follow the reference contract.

The contract: ``model(x, return_hidden=True) -> (logits, [h_0..h_L])``, and ``model.blocks`` between
these states.
"""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, first_line
from fa_audit.networks.description import DescribedNetwork, describe, shown
from fa_audit.networks.network import Network
from fa_audit.networks.proposals import propose
from fa_audit.networks.readings import READS, reading_of
from fa_audit.networks.states import Description, hook_points
from fa_audit.networks.trace import untouched

TOLERANCE = 1e-4  # relative to the largest entry; the same operations are usually exact


def wrap_model(model: nn.Module, x: Tensor) -> Network:
    """Return a `Network` that shares the parameters of a model without a description.

    Args:
        model: one of ours (returned as it is), one with `HookPoint` modules, or a network of the
            reference contract.
        x: a batch of inputs on the model's device, with which the states are proven.

    Raises:
        AuditError: it is none of these; the message names the place and the description to pass.

    >>> model = nn.Module()
    >>> model.embed, model.blocks, model.head = nn.Linear(4, 8), nn.ModuleList([nn.Linear(8, 8)]), nn.Linear(8, 3)
    >>> def forward(x, return_hidden=False):
    ...     h0 = model.embed(x)
    ...     h1 = h0 + model.blocks[0](h0)
    ...     return (model.head(h1), [h0, h1]) if return_hidden else model.head(h1)
    >>> model.forward = forward
    >>> wrap_model(model, torch.eye(4)).names
    ('input:blocks.0', 'input:head')
    """
    if isinstance(model, Network):
        return model
    if hook_points(model):
        return describe(model, Description(), x)
    try:
        return _described(model, x)
    except AuditError as error:
        instead = "put h = hook(h) with a fa_audit.HookPoint at every state"
        with suppress(AuditError):  # the first error says what is wrong with the model
            if found := propose(model, x):
                instead = f"pass {found[0].python}, which fits this model"
        raise AuditError(f"{error} Without the contract, {instead}.") from error


def _described(model: nn.Module, x: Tensor) -> DescribedNetwork:
    with untouched(model), torch.no_grad():
        logits, hidden = _own_forward(model, x)
    network = describe(model, Description("blocks.*"), x)
    with untouched(model), torch.no_grad():
        states, again = network.states_of(x)
    if deviation(logits, again) > TOLERANCE:
        raise AuditError(
            f"{type(model).__name__}: two forward passes of the same inputs in evaluation mode differ; expected the"
            " same logits. Turn off dropout (training=self.training) and noise."
        )
    pooled = (
        states[-1].dim() < hidden[-1].dim()
    )  # the model reads a vector of h_L before its head's first module
    for reads in READS if pooled else (reading_of(network, x),):
        network.read_by(reads)
        if len(states) == len(hidden) and all(
            _read_alike(network, h, other) for h, other in zip(hidden, states)
        ):
            return network
    raise AuditError(
        f"{type(model).__name__}: its hidden states are not those at its blocks ({', '.join(network.names)}). Expected"
        " h_l to be what block l reads, and h_L what the head reads."
    )


def _own_forward(model: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Run the model and check its logits and states against the contract."""
    if not isinstance(getattr(model, "blocks", None), nn.ModuleList | nn.Sequential):
        children = ", ".join(name for name, _ in model.named_children())
        own = getattr(model, "blocks", None)
        hint = (
            f" Its 'blocks' is a {type(own).__name__}, which hides their parameters."
            if own is not None
            else ""
        )
        raise AuditError(
            f"{type(model).__name__}: expected an nn.ModuleList 'blocks'; found children: {children or 'none'}.{hint}"
        )
    must_return = (
        f"{type(model).__name__}: model(x, return_hidden=True) must return (logits, [h_0..h_L])"
    )
    try:
        logits, hidden = model(x.clone(), return_hidden=True)
        hidden = list(hidden)
    except Exception as error:  # external code may raise anything
        raise AuditError(
            f"{must_return}; on inputs {tuple(x.shape)} of {x.dtype} it failed: {first_line(error)}."
        ) from error
    if not isinstance(logits, Tensor) or not all(isinstance(state, Tensor) for state in hidden):
        raise AuditError(
            f"{must_return}, logits and tensors; found {shown(logits)} and {shown(hidden)}."
        )
    if len(hidden) != len(model.blocks) + 1:
        raise AuditError(
            f"{type(model).__name__}: found {len(hidden)} hidden states for {len(model.blocks)} blocks;"
            f" expected {len(model.blocks) + 1}, h_0 being the embedding's output."
        )
    return logits, hidden


def _read_alike(network: DescribedNetwork, h: Tensor, other: Tensor) -> bool:
    known = h.dim() in network.averaged and other.dim() in network.averaged
    return known and deviation(network.read(h), network.read(other)) <= TOLERANCE


def deviation(expected: Tensor, found: Tensor) -> float:
    """Return the largest difference relative to the largest expected entry; non-finite entries must
    coincide.
    """
    if expected.shape != found.shape or not torch.equal(expected.isfinite(), found.isfinite()):
        return float("inf")
    finite = expected.isfinite()
    if not finite.any():
        return 0.0
    expected, found = expected[finite].double(), found[finite].double()
    return ((expected - found).abs().max() / expected.abs().max().clamp_min(1e-300)).item()
