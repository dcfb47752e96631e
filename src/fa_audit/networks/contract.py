"""Wrap external models that follow the reference contract as a `Network`.

The contract: ``model(x, return_hidden=True) -> (logits, [h_0..h_L])``, ``model.blocks``, ``embed`` or
``patch_embed``, and ``out_ln`` + ``out_head`` or ``norm`` + ``head``, the norm being optional. The open points
(do blocks return the residual or the new state, what does the head read) are settled by replaying the forward
pass in every way that the contract allows and keeping the one that reproduces the model's own logits and states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, first_line
from fa_audit.networks.description import are_logits, shown
from fa_audit.networks.network import Network, Skip
from fa_audit.networks.proposals import propose
from fa_audit.networks.trace import untouched

TOLERANCE = 1e-4  # relative to the largest logit; a replay of the same operations is usually exact
READS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole state": lambda h: h,
    "cls token": lambda h: h[:, 0],
    "last token": lambda h: h[:, -1],
    "token mean": lambda h: h.mean(dim=1),
    "spatial mean": lambda h: h.mean(dim=(2, 3)),
    "flattened state": lambda h: h.flatten(1),
}


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
    ...     return model.head(h1), [h0, h1]
    >>> model.forward = forward
    >>> network = wrap_contract_model(model, torch.ones(2, 4))
    >>> network.skip, network.head.read
    ('outside', 'whole state')
    """
    if isinstance(model, Network):
        return model
    try:
        return _best_view(model, x)
    except AuditError as error:
        if _is_random(model, x):
            raise AuditError(
                f"{_name(model)}: two forward passes of the same inputs in evaluation mode differ; expected the same"
                " logits. Turn off dropout (training=self.training) and noise."
            ) from error
        raise AuditError(f"{error} {_instead(model, x)}") from error


def _is_random(model: nn.Module, x: Tensor) -> bool:
    """Return whether two forward passes give different logits; False where the model fails or returns no tensor."""
    with untouched(model), torch.no_grad():
        try:
            one, other = (model(x.clone()) for _ in range(2))
            return _deviation(one, other) > TOLERANCE
        except Exception:  # external code may raise anything
            return False


def _instead(model: nn.Module, x: Tensor) -> str:
    """Name the description that makes a model auditable without the contract."""
    try:
        fitting = propose(model, x)
    except AuditError:  # the first error says what is wrong with the model
        fitting = []
    if fitting:
        return f"Without the contract, pass {fitting[0].python}, which fits this model."
    example = 'description=Description("layers.*", "cls token")'
    return f"Without the contract, pass a description of its blocks and of what its head reads, such as {example}."


def _best_view(model: nn.Module, x: Tensor) -> ContractNetwork:
    with untouched(model), torch.no_grad():
        logits, hidden = _own_forward(model, x)
        scored = [(_replay_error(view, x, logits, hidden), index, view) for index, view in enumerate(_views(model))]
    if not scored:
        raise AuditError(f"{_name(model)}: no head found; expected an attribute 'head' or 'out_head'.")
    error, _, view = min(scored, key=lambda entry: entry[:2])
    if not error <= TOLERANCE:
        raise AuditError(
            f"{_name(model)}: none of {len(scored)} readings of the reference contract reproduces the model's logits"
            f" and states (closest: {view.how}, relative error {error:.1e}). Expected h_(l+1) = h_l + blocks[l](h_l)"
            " or h_(l+1) = blocks[l](h_l), then an optional norm and the head."
        )
    return view


class ContractNetwork(Network):
    """Run a model under one reading of the reference contract."""

    def __init__(self, model: nn.Module, skip: Skip, start: Callable[[Tensor], Tensor], tail: _Tail, how: str) -> None:
        super().__init__()
        self.model, self.skip, self.blocks, self.how = model, skip, model.blocks, how
        self.embed, self.head = start, tail

    def split(self, layer: int, h: Tensor) -> tuple[Tensor, Tensor]:
        return super().split(layer, h.clone())  # a block may work in place; the caller's state must stay as it was

    def read(self, h: Tensor) -> Tensor:
        if h.dim() == 3 and self.head.read == "token mean":
            return h.mean(dim=1)
        return h[:, -1] if self._last(h) else super().read(h)

    def read_gradient(self, g: Tensor) -> Tensor:
        if g.dim() == 3 and self.head.read == "token mean":
            return g.sum(dim=1)
        return g[:, -1] if self._last(g) else super().read_gradient(g)

    def shift(self, h: Tensor, delta: Tensor) -> Tensor:
        if h.dim() == 3 and self.head.read == "token mean":
            return h + delta[:, None]
        if self._last(h):
            return torch.cat([h[:, :-1], h[:, -1:] + delta[:, None]], dim=1)
        return super().shift(h, delta)

    def _last(self, h: Tensor) -> bool:
        return h.dim() == 3 and self.head.read == "last token"


class _Start(nn.Module):
    """Compute ``h_0``: the model's first hidden state, or what its embedding returns."""

    def __init__(self, model: nn.Module, source: str) -> None:
        super().__init__()
        self.model, self.source = model, source

    def forward(self, x: Tensor) -> Tensor:
        if self.source == "return_hidden":
            return self.model(x.clone(), return_hidden=True)[1][0]  # a model may work on its input in place
        return getattr(self.model, self.source)(x.clone())


class _Tail(nn.Module):
    """Apply terminal norm, reading and head in the order that the model uses."""

    def __init__(self, norm: nn.Module, head: nn.Module, read: str, norm_first: bool) -> None:
        super().__init__()
        self.norm, self.linear, self.read, self.norm_first = norm, head, read, norm_first

    def forward(self, h: Tensor) -> Tensor:
        select = READS[self.read]
        return self.linear(select(self.norm(h)) if self.norm_first else self.norm(select(h)))


def _own_forward(model: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Run the model and check its logits and states against the contract."""
    if not isinstance(getattr(model, "blocks", None), nn.ModuleList | nn.Sequential):
        children = ", ".join(name for name, _ in model.named_children())
        own = getattr(model, "blocks", None)
        hint = f" Its 'blocks' is a {type(own).__name__}, which hides their parameters." if own is not None else ""
        raise AuditError(
            f"{_name(model)}: expected an nn.ModuleList 'blocks'; found children: {children or 'none'}.{hint}"
        )
    must_return = f"{_name(model)}: model(x, return_hidden=True) must return (logits, [h_0..h_L])"
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
            f"{_name(model)}: found {len(hidden)} hidden states for {len(model.blocks)} blocks;"
            f" expected {len(model.blocks) + 1}, h_0 being the embedding's output."
        )
    return logits, hidden


def _views(model: nn.Module) -> Iterator[ContractNetwork]:
    """Yield every reading that the contract allows, the likeliest first."""
    starts = ["return_hidden", *(name for name in ("embed", "patch_embed") if hasattr(model, name))]
    for start, skip, tail in product(starts, ("outside", "inside", "none"), list(_tails(model))):
        order = "norm, then " if tail.norm_first else ""
        how = f"h_0 from {start}, skip {skip} the block, head reads {order}{tail.read}"
        yield ContractNetwork(model, skip, _Start(model, start), tail, how)


def _tails(model: nn.Module) -> Iterator[_Tail]:
    pairs = [("out_ln", "out_head"), ("norm", "head"), (None, "out_head"), (None, "head")]
    for norm_name, head_name in pairs:
        head = getattr(model, head_name, None)
        norm = getattr(model, norm_name, None) if norm_name else nn.Identity()
        if isinstance(head, nn.Module) and isinstance(norm, nn.Module):
            for read, norm_first in product(READS, (True, False) if norm_name else (True,)):
                yield _Tail(norm, head, read, norm_first)


def _replay_error(view: ContractNetwork, x: Tensor, logits: Tensor, hidden: list[Tensor]) -> float:
    """Return how far a reading is from the model's own forward: 0 is exact, infinite if it cannot run."""
    try:
        replayed, states = view(x, return_hidden=True)
    except Exception:  # most readings are wrong, and a wrong one may raise anything
        return float("inf")
    pairs = [(own if own.shape == state.shape else None, state) for own, state in zip(hidden, states)]
    same = [_deviation(own, state) for own, state in pairs if own is not None]
    return max([_deviation(logits, replayed), *same])


def _deviation(expected: Tensor, found: Tensor) -> float:
    """Return the largest difference relative to the largest expected entry; non-finite entries must coincide."""
    if expected.shape != found.shape or not torch.equal(expected.isfinite(), found.isfinite()):
        return float("inf")
    finite = expected.isfinite()
    if not finite.any():
        return 0.0
    expected, found = expected[finite].double(), found[finite].double()
    return ((expected - found).abs().max() / expected.abs().max().clamp_min(1e-300)).item()


def _name(model: nn.Module) -> str:
    return type(model).__name__
