"""Define what every architecture has: an embedding, a list of blocks, a head, and skips.

Shapes: B batch, d width, T tokens, H x W positions, C classes.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

Skip = Literal["outside", "inside", "none"]


def _vector_of(h: Tensor) -> Tensor:
    """Return the vector ``(B, d)`` of a state: the state itself, its cls token (token 0), or its
    spatial mean.
    """
    if h.dim() == 3:
        return h[:, 0]
    return h.mean(dim=(2, 3)) if h.dim() == 4 else h


class Vector(nn.Module):
    """The first layer of a head: reduce the last state to the vector that audits measure."""

    def forward(self, h: Tensor) -> Tensor:
        return _vector_of(h)


class Conv3x3(nn.Conv2d):
    """A 3 x 3 convolution without bias that keeps the resolution.

    On a CPU it uses the channels-last memory format, which takes a quarter to a third less
    time than the default.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, width, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.contiguous(memory_format=torch.channels_last) if x.is_cpu else x)


class Chain(NamedTuple):
    """What a forward pass returns: the detached states ``[h_0..h_L]``, the points of the graph at
    which to take their gradients, and the outputs ``(B, ...)``.
    """

    states: list[Tensor]
    points: list[Any]
    logits: Tensor


class Network(nn.Module):
    """A chain ``h_0 = embed(x)``, ``h_{l+1} = split(l, h_l)[1]``, ``logits = head(h_L)``.

    Architectures are built from ``image_shape`` (channels, height, width), ``classes``, ``width``
    and ``depth``, the number of blocks ``L``.

    Attributes:
        skip: what `blocks[l]` returns. ``"outside"``: the residual ``f_l``, to be added to ``h_l``;
            ``"inside"``: the new state, with the block's own skip; ``"none"``: the new state of a
            network without skips.
        width: ``d``, the length of a state's vector.
        widths: lengths of the vectors of ``h_0..h_L``, if blocks change the width; then also set
            ``reshapes = True``.
        classes: ``C``, the number of logits.
        image_shape: the shape of one input. The engine sets it, for methods that send errors to the
            input.
    """

    embed: nn.Module
    blocks: nn.ModuleList
    head: nn.Module
    skip: Skip = "outside"
    reshapes: ClassVar[bool] = False
    width: int
    widths: tuple[int, ...] = ()
    classes: int
    image_shape: tuple[int, ...]

    def split(self, layer: int, h: Tensor) -> tuple[Tensor, Tensor]:
        """Run block `layer`; return its residual ``f_l(h_l)`` and the next state ``h_{l+1}``.

        Without a skip, or if a block with its own skip changes the state's shape, both are the
        block's output. A skip outside the blocks needs blocks that keep the shape.
        """
        out = self.blocks[layer](h)
        if self.skip == "outside":
            return out, h + out
        # The block adds its own skip, so only subtraction shows the residual.
        if self.skip == "inside" and out.shape == h.shape:
            return out - h, out
        return out, out

    def width_of(self, layer: int) -> int:
        """Return the length of the vector of the state ``h_layer``."""
        return self.widths[layer] if self.widths else self.width

    def read(self, h: Tensor) -> Tensor:
        """Return the vector ``(B, d)`` of a state: itself, its cls token, or its spatial mean."""
        return _vector_of(h)

    def read_gradient(self, g: Tensor) -> Tensor:
        """Turn the gradient `g` at a state into the gradient ``(B, d)`` at the state's vector."""
        # A mean moves by delta if every position does, so the gradients of positions add up.
        return g.sum(dim=(2, 3)) if g.dim() == 4 else _vector_of(g)

    @staticmethod
    def lift(vector: Tensor, like: Tensor) -> Tensor:
        """Give `vector` the dimensions of `like`: ``(B, d)``, ``(B, 1, d)`` or ``(B, d, 1, 1)``."""
        if like.dim() == 3:
            return vector[:, None]
        return vector[:, :, None, None] if like.dim() == 4 else vector

    def shift(self, h: Tensor, delta: Tensor) -> Tensor:
        """Add `delta` ``(B, d)`` to the vector that `read` takes from `h`; return the new state."""
        if h.dim() == 3:
            return torch.cat([h[:, :1] + delta[:, None], h[:, 1:]], dim=1)
        return h + self.lift(delta, h)

    @property
    def depth(self) -> int:
        """Return the number of blocks ``L``."""
        return len(self.blocks)

    def chain(self, x: Tensor) -> Chain:
        """Run one pass from a leaf ``h_0``, so that the embedding needs no gradient."""
        # Gradients are taken at states only, so parameters may keep their requires_grad.
        with torch.enable_grad():
            points, logits = self._run(self.embed(x).detach().requires_grad_())
        return Chain([point.detach() for point in points], points, logits)

    def logits_from(self, layer: int, h: Tensor) -> Tensor:
        """Return the logits ``(B, C)`` of a pass that starts at the state ``h_layer`` = `h`."""
        return self._run(h, layer)[1]

    def forward(
        self, x: Tensor, return_hidden: bool = False
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Return logits ``(B, C)``; with `return_hidden` also the states ``[h_0..h_L]``."""
        states, logits = self._run(self.embed(x))
        return (logits, states) if return_hidden else logits

    def _run(self, h: Tensor, first: int = 0) -> tuple[list[Tensor], Tensor]:
        states = [h]
        for layer in range(first, len(self.blocks)):
            states.append(self.split(layer, states[-1])[1])
        return states, self.head(states[-1])
