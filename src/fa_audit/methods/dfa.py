"""Direct feedback alignment: every block sees the output error through a random matrix of its own.

    a_l = e B_l^T,    e = softmax(logits) - y,    embedding: e B_0^T,
    B_l in R^{d x C}, entries N(0, 1/C)

The embedding has a matrix of its own if block 0 changes the width.

Source: Nokland 2016.
Constants: none; the variance 1/C is from Hao, Wan, Zhai 2026.
Cost: one forward, one backward, as BP.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fa_audit.methods.method import (
    Credits,
    Feedback,
    Method,
    Network,
    Trace,
    output_error,
    state_widths,
)


class DFA(Method):
    random_feedback: ClassVar[bool] = True

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        first, *widths = state_widths(network)
        # The embedding shares the matrix of block 0 if both have the same width.
        if first not in widths[:1]:
            widths.append(first)
        return Feedback([(width, network.classes) for width in widths], 1, generator)

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        return self.projected(network, output_error(trace, labels), state)

    def projected(self, network: Network, signal: Tensor, state: Any) -> Credits:
        """Return credits that project `signal` ``(B, C)`` through the matrices in `state`."""
        depth = network.depth
        shared = depth and network.width_of(0) == network.width_of(1)
        blocks = tuple(signal @ state[layer].T for layer in range(depth))
        return Credits(blocks, signal @ state[0 if shared else depth].T)
