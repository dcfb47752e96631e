"""Wrap models for an audit, by whatever says where their states are; the reference contract.

The contract: ``model(x, return_hidden=True) -> (logits, [h_0..h_L])``, with ``model.blocks``
between these states.
"""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, first_line
from fa_audit.networks.description import (
    DIFFERENT,
    DescribedNetwork,
    NotWhole,
    apart,
    describe,
)
from fa_audit.networks.network import Network
from fa_audit.networks.proposals import best_proposal
from fa_audit.networks.readings import READS, reading_of
from fa_audit.networks.states import Description, hook_points
from fa_audit.networks.trace import shown, untouched


def wrap_model(model: nn.Module, x: Tensor, description: Description | None = None) -> Network:
    """Return a `Network` that shares the parameters of a model.

    Args:
        model: with a description anything; else one of ours (returned as it is), one with
            `HookPoint` modules, or a network of the reference contract.
        x: a batch of inputs on the model's device, with which the states are proven.

    Raises:
        AuditError: it is none of these, or its states are not whole; the message names the place
            and, where there is one, a description to pass.

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
    if description is None and isinstance(model, Network):
        return model
    by_contract = description is None and not hook_points(model)
    try:
        if by_contract:
            return _by_contract(model, x)
        return describe(model, description or Description(), x)
    except AuditError as error:
        proposal = None
        if by_contract or isinstance(error, NotWhole):
            with suppress(AuditError):  # the first error says what is wrong with the model
                proposal = best_proposal(model, x)
        if proposal is None:
            raise
        raise type(error)(f"{error} These states are whole: {proposal.python}.") from error


def _by_contract(model: nn.Module, x: Tensor) -> DescribedNetwork:
    """Describe a model by its blocks, and check that these are between the states it returns."""
    network = describe(model, Description("blocks.*"), x)
    with untouched(model), torch.no_grad():
        logits, states = network(x, return_hidden=True)
        try:
            own_logits, hidden = model(x.clone(), return_hidden=True)
            found = f"{shown(own_logits)} and {shown(hidden)}"
            right = len(hidden) == len(states) and not apart(logits, own_logits) > DIFFERENT
        except Exception as error:  # external code may raise anything
            right, found = False, first_line(error)
    if right:
        # The model may read a vector of h_L before its head's first module.
        for reads in (reading_of(network, x), *READS):
            network.reads = reads
            if all(_read_alike(network, *pair) for pair in zip(hidden, states)):
                return network
    raise AuditError(
        f"{type(model).__name__}: model(x, return_hidden=True) must return the logits of"
        f" model(x), and [h_0..h_L], of which h_l is what block l reads and h_L what the head"
        f" reads; found {found} for the states {', '.join(network.names)}."
    )


def _read_alike(network: Network, h: Tensor, other: Tensor) -> bool:
    """Return whether two states have the same vector; what is not finite is not compared."""
    one, other = network.read(h), network.read(other)
    if one.shape != other.shape:
        return False
    finite = one.isfinite() & other.isfinite()
    return not apart(one[finite], other[finite]) > DIFFERENT
