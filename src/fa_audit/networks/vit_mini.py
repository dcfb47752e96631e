"""ViT-Mini: a small pre-LayerNorm vision transformer; its head reads the cls token's LayerNorm.

    tokens of 4 x 4 pixels, a cls token before them, learned positions;
    cls token and positions ~ N(0, 0.02^2)
    h_{l+1} = u + W2 GELU(W1 LN(u)),    u = h_l + attention(LN(h_l)),    4 heads, hidden layer 4 d

Source: Hao, Wan, Zhai 2026 (arXiv 2606.21126), d = 128, L = 4. Images whose sides are not multiples
of 4 are padded with zeros on the right and below, our choice. Attention is made of linear layers,
so that every weight can have a feedback partner. torch's `trunc_normal_` cuts at -2 and 2, not at
two deviations, so these Gaussians are in effect not truncated. Without blocks the head reads a cls
token that has attended to nothing, so that all images have the same output.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil, prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.networks.network import Network, Vector

PATCH, _HEADS, _MLP_RATIO = 4, 4, 4
_POSITION_STD = 0.02


class PatchEmbedding(nn.Module):
    """Images ``(B, C, H, W)`` to tokens ``(B, 1 + T, d)``, cls token first."""

    def __init__(self, image_shape: tuple[int, ...], width: int) -> None:
        super().__init__()
        channels, *sides = image_shape
        self.padding = [amount for side in reversed(sides) for amount in (0, -side % PATCH)]
        self.project = nn.Conv2d(channels, width, PATCH, stride=PATCH)
        count = 1 + prod(ceil(side / PATCH) for side in sides)
        self.cls = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, 1, width), std=_POSITION_STD))
        self.position = nn.Parameter(
            nn.init.trunc_normal_(torch.empty(1, count, width), std=_POSITION_STD)
        )

    def forward(self, x: Tensor) -> Tensor:
        patches = self.project(F.pad(x, self.padding)).flatten(2).transpose(1, 2)
        return torch.cat([self.cls.expand(len(x), -1, -1), patches], dim=1) + self.position


class Attention(nn.Module):
    """Multi-head self-attention, ``(B, T, d) -> (B, T, d)``; each head has ``max(1, d // 4)``
    features.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = _HEADS * max(1, width // _HEADS)
        self.query_key_value = nn.Linear(width, 3 * inner)
        self.out = nn.Linear(inner, width)

    def forward(self, h: Tensor) -> Tensor:
        q, k, v = self.query_key_value(h).unflatten(-1, (3, _HEADS, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and MLP, each with its own skip, ``(B, T, d) -> (B, T, d)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, _MLP_RATIO * width), nn.GELU(), nn.Linear(_MLP_RATIO * width, width)
        )

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.attention(self.attention_norm(h))
        return h + self.mlp(self.mlp_norm(h))


class ViTMini(Network):
    """The vision transformer of this file."""

    skip = "inside"

    def __init__(
        self, *, image_shape: tuple[int, ...], classes: int, width: int = 128, depth: int = 4
    ) -> None:
        super().__init__()
        self.width, self.classes = width, classes
        self.embed = PatchEmbedding(image_shape, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        norm, linear = nn.LayerNorm(width), nn.Linear(width, classes)
        self.head = nn.Sequential(OrderedDict(cls=Vector(), norm=norm, linear=linear))
