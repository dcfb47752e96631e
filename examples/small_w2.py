"""A network of one's own, by subclassing: without skips, from smaller weights (a question of docs/findings.md).

In a configuration: ``architecture: {name: "examples.small_w2:SmallW2", width: 256, depth: 4}``.
"""

from torch import nn

from fa_audit.networks.resmlp import ResMLP


class SmallW2(ResMLP):
    """MLP without skips, ``h_{l+1} = W2 GELU(W1 LN(h_l))``, with ``W2 ~ N(0, 0.05^2)`` in place of ``N(0, 0.5^2)``."""

    def __init__(self, *, image_shape: tuple[int, ...], classes: int, width: int = 256, depth: int = 4) -> None:
        super().__init__(image_shape=image_shape, classes=classes, width=width, depth=depth, residual=False)
        for block in self.blocks:
            nn.init.normal_(block.outer.weight, std=0.05)
