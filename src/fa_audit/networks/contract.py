"""Wrap external models that follow the paper's contract.

The contract: ``model(x, return_hidden=True) -> (logits, [h_0..h_L])``, with ``model.blocks``
between these states.
"""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, first_line
from fa_audit.networks.description import DIFFERENT, DescribedNetwork, apart, describe
from fa_audit.networks.network import Network
from fa_audit.networks.proposals import propose
from fa_audit.networks.readings import READS, reading_of
from fa_audit.networks.states import Description, hook_points
from fa_audit.networks.trace import shown, untouched


def wrap_model(model: nn.Module, x: Tensor) -> Network:
    """Wrap a model without a description as a `Network` that shares its parameters.

    Args:
        model: a `Network` (returned unchanged), a model with `HookPoint` modules, or one that
            follows the contract.
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
            proposals = propose(model, x)
            if proposals:
                instead = f"pass {proposals[0].python}, which fits this model"
        raise AuditError(f"{error} Without the contract, {instead}.") from error


def _described(model: nn.Module, x: Tensor) -> DescribedNetwork:
    """Describe a model by its blocks, and check that these are between the states it returns."""
    name, blocks = type(model).__name__, getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList | nn.Sequential):
        children = ", ".join(child for child, _ in model.named_children()) or "none"
        raise AuditError(f"{name}: expected an nn.ModuleList 'blocks'; found children: {children}.")
    with untouched(model), torch.no_grad():
        try:
            logits, hidden = model(x.clone(), return_hidden=True)
            right = len(hidden) == len(blocks) + 1 and all(h.dim() > 1 for h in hidden)
            found = f"{shown(logits)} and {shown(hidden)}"
        except Exception as error:  # external code may raise anything
            right, found = False, first_line(error)
    if not right or not isinstance(logits, Tensor):
        raise AuditError(
            f"{name}: model(x, return_hidden=True) must return (logits, [h_0..h_L]),"
            f" {len(blocks) + 1} states for {len(blocks)} blocks; found {found}."
        )
    network = describe(model, Description("blocks.*"), x)
    with untouched(model), torch.no_grad():
        again, states = network(x, return_hidden=True)
    if apart(logits, again) > DIFFERENT:
        raise AuditError(
            f"{name}: with return_hidden=True its logits are others than without; expected the same"
            " forward pass."
        )
    # The model may read a vector of h_L before its head's first module.
    pooled = states[-1].dim() < hidden[-1].dim()
    for reads in READS if pooled else (reading_of(network, x),):
        network.read_by(reads)
        if len(states) == len(hidden) and all(
            _read_alike(network, h, other) for h, other in zip(hidden, states)
        ):
            return network
    raise AuditError(
        f"{name}: its hidden states are not those at its blocks ({', '.join(network.names)})."
        " Expected h_l to be what block l reads, and h_L what the head reads."
    )


def _read_alike(network: DescribedNetwork, h: Tensor, other: Tensor) -> bool:
    """Return whether two states have the same vector, ignoring entries that are not finite."""
    one, other = network.read(h), network.read(other)
    if one.shape != other.shape:
        return False
    finite = one.isfinite() & other.isfinite()
    return not apart(one[finite], other[finite]) > DIFFERENT
