"""Student MLP: the residual MLP without terminal LayerNorm, for the data set `synthetic_teacher`.

This is the negative control: in the paper neither D1 nor D2 fires. Source: Hao, Wan, Zhai 2026
(arXiv 2606.21126), d = 128.
"""

from __future__ import annotations

from fa_audit.networks.resmlp import ResMLP


class StudentMLP(ResMLP):
    """The student network of this file."""

    def __init__(
        self, *, image_shape: tuple[int, ...], classes: int, width: int = 128, depth: int = 4
    ) -> None:
        super().__init__(
            image_shape=image_shape,
            classes=classes,
            width=width,
            depth=depth,
            terminal_norm=False,
        )
