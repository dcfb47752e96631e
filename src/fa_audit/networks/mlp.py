"""Multilayer perceptron without skips, as in many papers on feedback alignment.

    h_0 = s(W_0 x + b_0),    h_{l+1} = s(W h_l + b),    linear head

It has ``depth + 1`` hidden layers of one width; the first is the embedding. Initialisation is
torch's default.
"""

from __future__ import annotations

from collections import OrderedDict
from math import prod

from torch import Tensor, nn

from fa_audit.core.errors import unknown
from fa_audit.networks.network import Network

_ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


class Layer(nn.Module):
    """One hidden layer ``s(W h + b)``, ``(B, inputs) -> (B, width)``."""

    def __init__(self, inputs: int, width: int, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, width)
        self.activation = _ACTIVATIONS[activation]()

    def forward(self, h: Tensor) -> Tensor:
        return self.activation(self.linear(h.flatten(1)))


class MLP(Network):
    """The multilayer perceptron of this file.

    Args:
        width: units of every hidden layer.
        depth: hidden layers after the first.
        activation: ``relu``, ``tanh`` or ``sigmoid``.

    Raises:
        AuditError: the activation is unknown.
    """

    skip = "none"

    def __init__(
        self,
        *,
        image_shape: tuple[int, ...],
        classes: int,
        width: int = 512,
        depth: int = 2,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise unknown("activation", activation, _ACTIVATIONS, where="mlp")
        self.width, self.classes = width, classes
        self.embed = Layer(prod(image_shape), width, activation)
        self.blocks = nn.ModuleList(Layer(width, width, activation) for _ in range(depth))
        self.head = nn.Sequential(OrderedDict(linear=nn.Linear(width, classes)))
