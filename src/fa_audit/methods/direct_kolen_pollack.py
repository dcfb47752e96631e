"""Direct Kolen-Pollack: direct feedback alignment whose matrices learn like linear classifiers.

    a_l = e B_l^T,    e = softmax(logits) - y,    B_l in R^{d x C}
    B_l descends the batch mean of <e, h_{l+1} B_l> with the optimiser and decay of the weights; the
        gradient is the batch mean of h_{l+1}^T e
    embedding: the same with a matrix for h_0

The topmost matrix and a linear head's weight have the same gradient, so that every step of AdamW
multiplies their distance by 1 - lr * decay, as in Kolen-Pollack. According to the source, the other
matrices learn to estimate the path from their state to the output.

Source: Webster, Choi, Ahn 2021 (OpenReview zgGmAx9ZcY). The gradient and the initial entries
    (uniform in +-sqrt(6 / d)) are from the authors' code (webstah/dkp-gist,
    utils/gradfunctions.py).
Ours: one optimiser, rate and decay for weights and feedback (the authors' code has Adam for the
    feedback, with an L2 penalty of 1e-6 and a rate that falls by a fifth every epoch); matrices
    learn from a state's vector even if the state is a map; the embedding has a matrix. Our matrices
    read states, skip included. If the head has a LayerNorm, the topmost matrix gets another
    gradient than the head's linear layer.
Constants: none.
Cost: as DFA, plus the optimiser's step for the matrices.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fa_audit.methods.method import (
    Credits,
    Method,
    Network,
    Trace,
    added,
    output_error,
    state_widths,
)


class DirectKolenPollack(Method):
    random_feedback: ClassVar[bool] = True
    decays_state: ClassVar[bool] = True

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return the embedding's matrix, then ``B_0..B_{L-1}``, each ``(d, C)``."""
        state = nn.ParameterList()
        for width in state_widths(network):
            drawn = 2 * torch.rand(width, network.classes, generator=generator) - 1
            state.append(drawn * (6 / width) ** 0.5)
        return state

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return projections of the output error, ``(B, d)`` each, detached from the matrices."""
        error = output_error(trace, labels)
        return Credits.bottom_up(error @ b.detach().T for b in state)

    def auxiliary_loss(
        self,
        network: Network,
        trace: Trace,
        labels: Tensor,
        state: Any,
        randomness: torch.Generator,
    ) -> Tensor:
        """Return a loss whose gradient at ``B_l`` is the batch mean of ``h_{l+1}^T e``."""
        error = output_error(trace, labels)
        products = []
        for h, b in zip(trace.states, state, strict=True):
            products.append((error * (network.read(h).detach() @ b)).sum())
        return added(products) / len(labels)
