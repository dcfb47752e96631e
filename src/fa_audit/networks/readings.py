"""Find out which vector of a state the head reads: the whole state, one token or a mean.

Shapes: B batch, d features, T tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fa_audit.core.errors import AuditError, listed
from fa_audit.networks.trace import untouched

READS = (
    "all features",
    "cls token",
    "last token",
    "spatial mean",
    "spatial mean, channels last",
)
TOKENS = {"cls token": 0, "last token": -1}
OTHERS = {"cls token": slice(1, None), "last token": slice(None, -1)}  # tokens that are not read


def averaged(reads: str, dims: int) -> tuple[int, ...]:
    """Return the dimensions of a state that a reading averages; tokens ``(B, T, d)`` have one.

    >>> averaged("spatial mean", 4), averaged("spatial mean", 3), averaged("cls token", 3)
    ((2, 3), (1,), ())
    """
    if not reads.startswith("spatial mean"):
        return ()
    channels_last = reads.endswith("last") or dims == 3
    return tuple(range(1, dims - 1) if channels_last else range(2, dims))


def check_reading(network: Any, x: Tensor) -> None:
    """Check that the head reads the vector that the description names: a token, or a mean.

    Raises:
        AuditError: it reads something else.
    """
    if network.reads == "all features":
        return
    with untouched(network), torch.no_grad():
        logits, states = network(x, return_hidden=True)
        dims = states[-1].dim()
        if dims == 2 or not logits.isfinite().all():
            return
        alone: list[str] = []
        if dims == 3 and states[-1].shape[1] > 1:
            alone = [token for token in TOKENS if not _depends_on_others(network, x, token)]
        own = averaged(network.reads, dims)
        others = tuple(range(2, dims) if 1 in own else range(1, dims - 1))
        turned = bool(own) and _any_order(network, x, others) and not _any_order(network, x, own)
    if alone:
        expected = alone[0]
    elif network.reads in TOKENS and states[-1].shape[1] > 1:
        expected = "spatial mean (of the tokens) or all features"
    elif turned:
        expected = f"a mean over the dimensions {listed(map(str, others))}, or all features"
    else:
        return
    if network.reads not in alone:
        raise AuditError(
            f"{type(network.inner).__name__}: reads: found {network.reads}; by the logits the head"
            f" reads something else of the last state. Expected {expected}."
        )


def reading_of(network: Any, x: Tensor) -> str:
    """Find out from the outputs what the head reads: one token, a mean, or else all features."""
    with untouched(network), torch.no_grad():
        _, states = network(x, return_hidden=True)
        top = states[-1]
        if top.dim() == 3 and top.shape[1] > 1:
            for token in TOKENS:
                if not _depends_on_others(network, x, token):
                    return token
        for mean in ("spatial mean", "spatial mean, channels last"):
            positions = averaged(mean, top.dim())
            if positions and _any_order(network, x, positions):
                return mean
    # A head that reads a vector says nothing about maps before it.
    maps = top.dim() == 2 and any(h.dim() > 2 for h in states)
    return "spatial mean" if maps else "all features"


def _depends_on_others(network: Any, x: Tensor, token: str) -> bool:
    """Return whether NaN in all other tokens reach the outputs; they do so even through zero
    weights.
    """

    def spoilt(h: Tensor) -> Tensor:
        h[:, OTHERS[token]] = torch.nan
        return h

    logits, _ = network.changed(x, network.depth, spoilt)
    return not bool(logits.isfinite().all())


def _any_order(network: Any, x: Tensor, positions: tuple[int, ...]) -> bool:
    """Return whether the outputs ignore the order of positions, with noise in place of the last
    state.
    """

    def noise(h: Tensor) -> Tensor:
        return torch.randn(h.shape, generator=torch.Generator().manual_seed(0)).to(h)

    try:
        one, _ = network.changed(x, network.depth, noise)
        other, _ = network.changed(x, network.depth, lambda h: noise(h).flip(positions))
    except AuditError:
        return False
    rounding = 100 * torch.finfo(one.dtype).eps * one.abs().max().item()
    return bool(one.isfinite().all()) and torch.allclose(one, other, rtol=0, atol=rounding)
