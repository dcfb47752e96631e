"""SmallResNet: a residual convolutional network with BatchNorm, at full resolution throughout.

    h_0 = relu(BN(conv x)),    h_{l+1} = relu(h_l + BN(conv relu(BN(conv h_l)))),
    linear head on the spatial mean

Source: Hao, Wan, Zhai 2026 (arXiv 2606.21126), 64 channels, 4 blocks, no LayerNorm. Convolutions
are 3 x 3 and have no bias, which BatchNorm would remove. The last ReLU belongs to the block, so the
residual is ``f_l = h_{l+1} - h_l``.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from fa_audit.networks.network import Conv3x3, Network, Vector


def _normalised_conv(channels: int, width: int) -> list[nn.Module]:
    """Return a 3 x 3 convolution that keeps the resolution, followed by BatchNorm."""
    return [Conv3x3(channels, width), nn.BatchNorm2d(width)]


class Block(nn.Module):
    """Two convolutions, the skip and a ReLU, ``(B, d, H, W) -> (B, d, H, W)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_normalised_conv(width, width), nn.ReLU(), *_normalised_conv(width, width)
        )
        self.activation = nn.ReLU()

    def forward(self, h: Tensor) -> Tensor:
        return self.activation(h + self.residual(h))


class SmallResNet(Network):
    """The residual network of this file; ``d`` is the number of channels of every state."""

    skip = "inside"

    def __init__(
        self, *, image_shape: tuple[int, ...], classes: int, width: int = 64, depth: int = 4
    ) -> None:
        super().__init__()
        self.width, self.classes = width, classes
        self.embed = nn.Sequential(*_normalised_conv(image_shape[0], width), nn.ReLU())
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Sequential(OrderedDict(mean=Vector(), linear=nn.Linear(width, classes)))
