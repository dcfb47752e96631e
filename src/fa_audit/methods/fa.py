"""Feedback alignment, block by block: random matrices carry the exact output gradient down.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l B_l,    embedding: a_0 B_0,
    B_l in R^{d x d}, entries N(0, 1/d)

If a block changes the width, B_l is d_{l+1} x d_l with entries N(0, 1/d_{l+1}), our choice.

CE is the batch mean, as in the code of Hao, Wan, Zhai. Blocks learn from r(a) = a / (rms(a) +
1e-6), whose floor damps the credit once the rms of dCE/dh_L falls to about 1e-6. FA's residual
stream then stops growing, while DFA's keeps growing.

Source: Lillicrap, Cownden, Tweed, Akerman 2016; block granularity as in Hao, Wan, Zhai 2026.
Constants: none; the variance 1/d is from Hao, Wan, Zhai.
Cost: one forward, one backward, as BP.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fa_audit.methods.method import (
    Credits,
    Feedback,
    Method,
    Network,
    Trace,
    state_widths,
    top_gradient,
)


class FA(Method):
    random_feedback: ClassVar[bool] = True

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        pairs = pairwise(state_widths(network))
        return Feedback([(above, below) for below, above in pairs], 0, generator)

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return a credit per state, ``(B, d)``: matrices carry the gradient at ``h_L`` down."""
        # The top credit is the true gradient; all lower ones go through random matrices.
        credit = network.read_gradient(top_gradient(trace, labels))
        descending = [credit]
        for layer in reversed(range(network.depth)):
            credit = credit @ state[layer]
            descending.append(credit)
        return Credits.bottom_up(reversed(descending), batch_mean=True)
