"""What a method is: it turns one forward trace into credits; the engine in `training.py` does the rest.

Shapes: B batch, d width, L blocks, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.architectures.network import Network
from fa_audit.trace import Trace


@dataclass(frozen=True)
class Credits:
    """The teaching signals of one batch, as vectors ``(B, d)`` that stand for loss gradients.

    Attributes:
        blocks: ``a_0..a_{L-1}``; ``a_l`` is assigned to the output ``f_l`` of block l.
        embedding: the credit of ``h_0``.
        normalise: divide each credit by its per-sample root mean square before learning from it; otherwise the
            credits must be gradients of the per-sample loss.
    """

    blocks: tuple[Tensor, ...]
    embedding: Tensor
    normalise: bool = True


@dataclass(frozen=True)
class Method:
    """A training method; its fields are its constants.

    Attributes:
        summary: one line for `fa-audit methods`.
        end_to_end: learn from the global loss by ordinary backpropagation. `credits` is then only audited.
    """

    summary: ClassVar[str] = ""
    end_to_end: ClassVar[bool] = False

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """What the method keeps beside the network: feedback matrices, auxiliary nets; here nothing."""
        return nn.Module()

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: nn.Module) -> Credits:
        """The credits of one batch, detached.

        Args:
            trace: local unless the method is `end_to_end`.
            labels: ``(B,)``.
            state: what `init_state` returned.
        """
        raise TypeError(f"{type(self).__name__} is a method without credits: define `credits`.")


class Feedback(nn.Module):
    """Fixed random feedback matrices ``B_0, B_1, ...``, entries ``N(0, std^2)``, saved with the checkpoint."""

    def __init__(self, count: int, shape: tuple[int, int], std: float, generator: torch.Generator) -> None:
        super().__init__()
        for index in range(count):
            self.register_buffer(f"B{index}", torch.randn(shape, generator=generator) * std)

    def __getitem__(self, index: int) -> Tensor:
        return self.get_buffer(f"B{index}")


def output_error(trace: Trace, labels: Tensor) -> Tensor:
    """``e = softmax(logits) - y``, ``(B, C)``, detached: the per-sample loss gradient by the logits."""
    logits = trace.logits.detach()
    return logits.softmax(dim=-1) - F.one_hot(labels, logits.shape[-1]).to(logits.dtype)


def loss_gradients(trace: Trace, labels: Tensor, at: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Gradients of the per-sample cross-entropy by tensors of the trace's graph, which stays usable."""
    loss = F.cross_entropy(trace.logits, labels, reduction="sum")
    return torch.autograd.grad(loss, at, retain_graph=True)
