"""Which vector of a state the head reads: the whole state, one token or a mean, as the outputs
show.

Shapes: B batch, d features, T tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fa_audit.core.errors import AuditError
from fa_audit.networks.trace import untouched

# The shapes that a state can have and, by its number of dimensions, the dimensions that its vector
# averages.
READS: dict[str, tuple[str, dict[int, tuple[int, ...]]]] = {
    "all features": ("(B, ...)", dict.fromkeys(range(2, 7), ())),
    "cls token": ("(B, T, d) or (B, d)", {2: (), 3: ()}),
    "last token": ("(B, T, d) or (B, d)", {2: (), 3: ()}),
    "spatial mean": (
        "(B, d, H, W), (B, T, d) or (B, d)",
        {2: (), 3: (1,), 4: (2, 3), 5: (2, 3, 4)},
    ),
    "spatial mean, channels last": (
        "(B, H, W, d), (B, T, d) or (B, d)",
        {2: (), 3: (1,), 4: (1, 2), 5: (1, 2, 3)},
    ),
}
TOKENS = {"cls token": 0, "last token": -1}  # readings of one token
OTHERS = {
    "cls token": slice(1, None),
    "last token": slice(None, -1),
}  # the tokens that it does not read


def check_reading(network: Any, x: Tensor) -> None:
    """Check that the head reads those tokens of the last state that the description names.

    Raises:
        AuditError: it reads others.
    """
    with untouched(network), torch.no_grad():
        states, logits = network.states_of(x)
        top = states[-1]
        if (
            top.dim() != 3
            or top.shape[1] == 1
            or network.reads == "all features"
            or not logits.isfinite().all()
        ):
            return
        alone = [name for name in OTHERS if not _depends_on(network, x, name)]
        expected = alone[0] if alone else ""
        if not alone and network.reads in TOKENS:
            expected = "spatial mean (of the tokens) or all features"
        elif not alone and _any_order(network, x, (2,)) and not _any_order(network, x, (1,)):
            expected = "all features: (B, d, T) has its positions last"
    if expected and network.reads not in alone:
        raise AuditError(
            f"{type(network.inner).__name__}: reads: found {network.reads}; by the logits the head reads something else"
            f" of the last state. Expected {expected}."
        )


def reading_of(network: Any, x: Tensor) -> str:
    """Return what the head reads of the last state: one token or a mean, as the outputs show; else
    all features.
    """
    with untouched(network), torch.no_grad():
        states, _ = network.states_of(x)
        top, few = states[-1], x
        if top.dim() == 3 and top.shape[1] > 1:
            for reading in OTHERS:
                if not _depends_on(network, few, reading):
                    return reading
        for reading in ("spatial mean", "spatial mean, channels last"):
            over = READS[reading][1].get(top.dim())
            if over and _any_order(network, few, over):
                return reading
    return "spatial mean" if top.dim() == 2 < max(h.dim() for h in states) else "all features"


def _depends_on(network: Any, x: Tensor, reading: str) -> bool:
    """Return whether NaN in the other tokens of the last state reach the outputs, even through
    weights of zero.
    """

    def spoilt(h: Tensor) -> Tensor:
        h[:, OTHERS[reading]] = torch.nan
        return h

    return not bool(network.logits_with(x, network.depth, spoilt).isfinite().all())


def _any_order(network: Any, x: Tensor, positions: tuple[int, ...]) -> bool:
    """Return whether the outputs stay the same when noise in place of the last state is turned
    round.
    """

    def noise(h: Tensor) -> Tensor:
        return torch.randn(h.shape, generator=torch.Generator().manual_seed(0)).to(h)

    try:
        one = network.logits_with(x, network.depth, noise)
        other = network.logits_with(x, network.depth, lambda h: noise(h).flip(positions))
    except AuditError:
        return False
    return bool(one.isfinite().all()) and torch.allclose(
        one, other, rtol=0, atol=100 * torch.finfo(one.dtype).eps * one.abs().max().item()
    )
