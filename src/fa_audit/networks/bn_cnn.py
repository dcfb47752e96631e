"""BatchNorm CNN: three convolutions and a fully connected layer, without skips and LayerNorm.

    h_0 = stage(x),    h_1 = stage(h_0),    h_2 = stage(h_1),    h_3 = relu(W h_2 + b),
    linear head;    stage: 3 x 3 convolution, BatchNorm, ReLU, 2 x 2 max pooling

Source: Hao, Wan, Zhai 2026 (arXiv 2606.21126) name the network (three convolutions with BatchNorm,
one fully connected layer). We chose the rest: one width (128) for all states, so that a credit
vector fits every state; the blocks (the stages after the first, and the fully connected layer); and
no pooling that would leave a side shorter than 2 pixels.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from fa_audit.networks.network import Conv3x3, Network, Vector

# On a map of one pixel BatchNorm could average over the minibatch only.
_SMALLEST_SIDE = 2


def _halved(sides: tuple[int, int]) -> tuple[int, int]:
    """Halve the sides of a map, unless one would become shorter than `_SMALLEST_SIDE`."""
    return (sides[0] // 2, sides[1] // 2) if min(sides) // 2 >= _SMALLEST_SIDE else sides


class Stage(nn.Sequential):
    """Convolution, BatchNorm, pooling and ReLU, ``(B, c, H, W) -> (B, d, *_halved((H, W)))``.

    Pooling comes before ReLU: the results are the same bits, and ReLU has a quarter of the work.
    """

    def __init__(self, channels: int, width: int, sides: tuple[int, int]) -> None:
        pooling = [nn.MaxPool2d(2)] if _halved(sides) != sides else []
        super().__init__(Conv3x3(channels, width), nn.BatchNorm2d(width), *pooling, nn.ReLU())


class BatchNormCNN(Network):
    """The convolutional network of this file.

    Args:
        width: ``d``, channels of every map and units of the fully connected layer.
        depth: number of blocks ``L``: ``L - 1`` stages after the embedding, and the fully connected
            layer. Without blocks, the head reads the spatial mean of the embedding's output.
    """

    skip = "none"

    def __init__(
        self, *, image_shape: tuple[int, ...], classes: int, width: int = 128, depth: int = 3
    ) -> None:
        super().__init__()
        self.width, self.classes = width, classes
        channels, *sides = image_shape
        shapes = [tuple(sides)]
        for _ in range(max(depth, 1)):
            shapes.append(_halved(shapes[-1]))
        self.embed = Stage(channels, width, shapes[0])
        stages = [Stage(width, width, shape) for shape in shapes[1:depth]]
        rows, columns = shapes[-1]
        connected = nn.Sequential(nn.Flatten(), nn.Linear(width * rows * columns, width), nn.ReLU())
        self.blocks = nn.ModuleList([*stages, connected] if depth else [])
        self.head = nn.Sequential(OrderedDict(vector=Vector(), linear=nn.Linear(width, classes)))
