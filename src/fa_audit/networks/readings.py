"""Find out which vector of a state the head reads: the whole state, one token or a mean.

Shapes: B batch, d features, T tokens.
"""

from __future__ import annotations

from functools import partial
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
    reads, dims = network.reads, len(network.shapes[-1])
    if reads == "all features" or dims == 2:
        return
    means = averaged(reads, dims)
    channels = tuple(range(2, dims) if 1 in means else range(1, dims - 1))
    with untouched(network), torch.no_grad():
        logits = network(x)
        token = _token_of(network, x)
        turned = means and _any_order(network, x, channels) and not _any_order(network, x, means)
    if not logits.isfinite().all():
        return
    if token:
        expected = token
    elif reads in TOKENS and network.shapes[-1][1] > 1:
        expected = "spatial mean (of the tokens) or all features"
    elif turned:
        expected = f"a mean over the dimensions {listed(map(str, channels))}, or all features"
    else:
        return
    if reads != expected:
        raise AuditError(
            f"{type(network.inner).__name__}: reads: found {reads}; by the logits the head"
            f" reads something else of the last state. Expected {expected}."
        )


def reading_of(network: Any, x: Tensor) -> str:
    """Return what the head reads of the last state: one token or a mean, as the outputs show; else
    all features.
    """
    dims = len(network.shapes[-1])
    with untouched(network), torch.no_grad():
        token = _token_of(network, x)
        if token:
            return token
        for mean in ("spatial mean", "spatial mean, channels last"):
            positions = averaged(mean, dims)
            if positions and _any_order(network, x, positions):
                return mean
    # A head that reads a vector says nothing about maps before it.
    maps = dims == 2 and any(len(shape) > 2 for shape in network.shapes)
    return "spatial mean" if maps else "all features"


def _token_of(network: Any, x: Tensor) -> str:
    """Return which token of the last state is the only one that the outputs depend on; empty if
    none is.

    NaN in the other tokens reach the outputs even through weights of zero.
    """
    shape = network.shapes[-1]
    if len(shape) != 3 or shape[1] == 1:
        return ""
    for token, others in OTHERS.items():
        logits, _ = network.changed(x, network.depth, partial(_spoilt, tokens=others))
        if logits.isfinite().all():
            return token
    return ""


def _spoilt(h: Tensor, tokens: slice) -> Tensor:
    h[:, tokens] = torch.nan
    return h


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
