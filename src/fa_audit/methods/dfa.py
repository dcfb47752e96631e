"""Direct feedback alignment: every block sees the output error through a random matrix of its own.

    a_l = e B_l^T,    e = softmax(logits) - y,    embedding: e B_0^T,    B_l in R^{d x C}, entries N(0, 1/C)

Source: Nokland 2016. Constants: none; the variance 1/C is the paper's. Cost: one forward, one backward, as BP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fa_audit.methods.method import Credits, Feedback, Method, output_error
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Trace


@dataclass(frozen=True)
class DFA(Method):
    summary: ClassVar[str] = "direct feedback alignment: a fixed random matrix per block projects the output error"
    equation: ClassVar[str] = "a_l = (p - y) B_l^T"
    feedback: ClassVar[str] = "fixed random B_l, d x C, per block"
    source: ClassVar[str] = "Nokland 2016"
    random_feedback: ClassVar[bool] = True

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        count = max(1, len(network.blocks))  # a network without blocks still teaches its embedding through B_0
        return Feedback(count, (network.width, network.classes), network.classes**-0.5, generator)

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: nn.Module) -> Credits:
        error = output_error(trace, labels)
        blocks = tuple(error @ state[layer].T for layer in range(len(network.blocks)))
        return Credits(blocks, error @ state[0].T)
