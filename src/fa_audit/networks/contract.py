"""Describe external models that follow the reference contract.

The contract: ``model(x, return_hidden=True) -> (logits, [h_0..h_L])`` and ``model.blocks``. The open points are settled
by trying: the head reads the vector whose description fits, and the model adds what its blocks return to their input if
that reproduces its states.
"""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, first_line
from fa_audit.networks.description import PROBE, DescribedNetwork, are_logits, describe, shown
from fa_audit.networks.network import Network
from fa_audit.networks.proposals import propose
from fa_audit.networks.trace import Description, untouched

TOLERANCE = 1e-4  # relative to the largest entry; the same operations are usually exact
READS = ("cls token", "last token", "spatial mean")  # the first that fits; plain vectors are read as they are


def wrap_contract_model(model: nn.Module, x: Tensor) -> Network:
    """Return a `Network` that shares the parameters of `model` and computes the same states and logits.

    Args:
        model: one of ours (returned as it is) or a network of the reference contract.
        x: a batch of inputs on the model's device, used to find out how the model works.

    Raises:
        AuditError: the model does not follow the contract; the message names the place and the description to pass.

    >>> model = nn.Module()
    >>> model.embed, model.blocks, model.head = nn.Linear(4, 8), nn.ModuleList([nn.Linear(8, 8)]), nn.Linear(8, 3)
    >>> def forward(x, return_hidden=False):
    ...     h0 = model.embed(x)
    ...     h1 = h0 + model.blocks[0](h0)
    ...     return (model.head(h1), [h0, h1]) if return_hidden else model.head(h1)
    >>> model.forward = forward
    >>> wrap_contract_model(model, torch.ones(2, 4)).added
    (True,)
    """
    if isinstance(model, Network):
        return model
    try:
        return _described(model, x[:PROBE])
    except AuditError as error:
        instead = 'a description of its blocks and of what its head reads, such as description=Description("layers.*",'
        instead += ' "cls token")'
        with suppress(AuditError):  # the first error says what is wrong with the model
            if fitting := propose(model, x):
                instead = f"{fitting[0].python}, which fits this model"
        raise AuditError(f"{error} Without the contract, pass {instead}.") from error


def _described(model: nn.Module, x: Tensor) -> DescribedNetwork:
    with untouched(model), torch.no_grad():
        logits, hidden = _own_forward(model, x)
    network = _read(model, x)
    with untouched(network):
        points, answer = network.chain(x)
        again = network(x)
    if deviation(answer, again) > TOLERANCE:
        raise AuditError(
            f"{type(model).__name__}: two forward passes of the same inputs in evaluation mode differ; expected the"
            " same logits. Turn off dropout (training=self.training) and noise."
        )
    errors = []
    for added in (False, True) if len({h.shape for h in hidden}) == 1 else (False,):
        network.added = (added,) * len(network.blocks)
        pairs = zip([logits, *hidden], [answer.detach(), *network.states_at(points)], strict=True)
        errors.append(max(deviation(*pair) for pair in pairs))
        if errors[-1] <= TOLERANCE:
            return network
    raise AuditError(
        f"{type(model).__name__}: neither what its blocks return nor its sums reproduces the model's logits and states"
        f" (relative error {min(errors):.1e}). Expected h_(l+1) = h_l + blocks[l](h_l) or h_(l+1) = blocks[l](h_l)."
    )


def _read(model: nn.Module, x: Tensor) -> DescribedNetwork:
    """Return the model as described by the first reading that fits; errors as in `describe` where none does."""
    *special, last = (Description("blocks.*", reads) for reads in READS)
    for description in special:
        with suppress(AuditError):
            return describe(model, description, x)
    return describe(model, last, x)


def _own_forward(model: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Run the model and check its logits and states against the contract."""
    if not isinstance(getattr(model, "blocks", None), nn.ModuleList | nn.Sequential):
        children = ", ".join(name for name, _ in model.named_children())
        own = getattr(model, "blocks", None)
        hint = f" Its 'blocks' is a {type(own).__name__}, which hides their parameters." if own is not None else ""
        raise AuditError(
            f"{type(model).__name__}: expected an nn.ModuleList 'blocks'; found children: {children or 'none'}.{hint}"
        )
    must_return = f"{type(model).__name__}: model(x, return_hidden=True) must return (logits, [h_0..h_L])"
    try:
        logits, hidden = model(x.clone(), return_hidden=True)
        hidden = list(hidden)
    except Exception as error:  # external code may raise anything
        raise AuditError(
            f"{must_return}; on inputs {tuple(x.shape)} of {x.dtype} it failed: {first_line(error)}."
        ) from error
    if not are_logits(logits, x) or not all(isinstance(state, Tensor) for state in hidden):
        raise AuditError(f"{must_return}, logits (B, C) and tensors; found {shown(logits)} and {shown(hidden)}.")
    if len(hidden) != len(model.blocks) + 1:
        raise AuditError(
            f"{type(model).__name__}: found {len(hidden)} hidden states for {len(model.blocks)} blocks;"
            f" expected {len(model.blocks) + 1}, h_0 being the embedding's output."
        )
    return logits, hidden


def deviation(expected: Tensor, found: Tensor) -> float:
    """Return the largest difference relative to the largest expected entry; non-finite entries must coincide."""
    if expected.shape != found.shape or not torch.equal(expected.isfinite(), found.isfinite()):
        return float("inf")
    finite = expected.isfinite()
    if not finite.any():
        return 0.0
    expected, found = expected[finite].double(), found[finite].double()
    return ((expected - found).abs().max() / expected.abs().max().clamp_min(1e-300)).item()
