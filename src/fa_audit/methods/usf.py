"""Uniform sign-symmetric feedback: gradients travel back through the signs of the weights.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,
    J_l: Jacobian of block l with each W replaced by sign(W) / sqrt(fan_in)

Source: Liao, Leibo, Poggio 2016; named uSF in Moskovitz, Litwin-Kumar, Abbott 2018. Not in Hao,
    Wan, Zhai 2026.
Constants: the magnitude 1/sqrt(fan_in), ours: the scale of a random matrix that preserves norms.
Cost: BP's forward and backward, and for the credit a forward with both weights and a backward
    through the blocks.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fa_audit.methods.method import Credits, Method, Network, Trace
from fa_audit.methods.transport import block_weights, fan_in, transported_credits


class USF(Method):
    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Carry the output gradient down through the present signs of the weights."""
        feedback = {
            weight: weight.detach().sign() * fan_in(weight) ** -0.5
            for _, weight in block_weights(network)
        }
        return transported_credits(network, trace, labels, feedback)
