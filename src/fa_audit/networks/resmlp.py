"""Pre-LayerNorm residual MLP: ``h_{l+1} = h_l + W2 GELU(W1 LN(h_l))``, LayerNorm, linear head.

Source: Hao, Wan, Zhai 2026 (arXiv 2606.21126), the main audit's network. W1 and W2 are d x d,
``W2 ~ N(0, 0.01^2)``, ``b2 = 0``; everything else has torch's default initialisation.
"""

from __future__ import annotations

from collections import OrderedDict
from math import prod

from torch import Tensor, nn

from fa_audit.networks.network import Network


class Block(nn.Module):
    """One residual ``f(h) = W2 GELU(W1 LN(h))``, ``(B, d) -> (B, d)``."""

    def __init__(self, width: int, out_std: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.activation = nn.GELU()
        self.outer = nn.Linear(width, width)
        nn.init.normal_(self.outer.weight, std=out_std)
        nn.init.zeros_(self.outer.bias)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(self.norm(h))))


class ResMLP(Network):
    """The residual MLP of this file.

    Args:
        terminal_norm: LayerNorm before the linear head.
        residual: add each block's output to its input; without it ``h_{l+1} = f_l(h_l)``.
        w2_std: standard deviation of W2; None means 0.01, or 0.5 without skips.
    """

    def __init__(
        self,
        *,
        image_shape: tuple[int, ...],
        classes: int,
        width: int = 256,
        depth: int = 4,
        terminal_norm: bool = True,
        residual: bool = True,
        w2_std: float | None = None,
    ) -> None:
        super().__init__()
        self.width, self.classes = width, classes
        self.skip = "outside" if residual else "none"
        self.embed = nn.Sequential(nn.Flatten(), nn.Linear(prod(image_shape), width))
        out_std = (0.01 if residual else 0.5) if w2_std is None else w2_std
        self.blocks = nn.ModuleList(Block(width, out_std) for _ in range(depth))
        norm = [("norm", nn.LayerNorm(width))] if terminal_norm else []
        self.head = nn.Sequential(OrderedDict([*norm, ("linear", nn.Linear(width, classes))]))
