"""Uniform sign-symmetric feedback: gradients travel back through the signs of the weights.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,    J_l: Jacobian of block l;    embedding: a_{-1};
    on the way back every matrix or kernel W of blocks and head is replaced by
    sign(W) / sqrt(fan_in)

Source: Liao, Leibo, Poggio 2016 (arXiv 1510.05067), uSF. They found BatchNorm or Batch Manhattan
    (updates by gradient signs) indispensable; this rule adds neither. Not in Hao, Wan, Zhai 2026.
Constants: the magnitude 1/sqrt(fan_in), ours: the scale of a random matrix that preserves norms.
Cost: a forward pass that runs each layer twice, with its W and with sign(W), and BP's backward
    pass; computing the credits repeats both passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from fa_audit.methods.method import Network
from fa_audit.methods.transport import Transported, fan_in, partnered_weights


class USF(Transported):
    def partners(self, network: Network, state: Any) -> Mapping[nn.Parameter, Tensor]:
        """Return the current signs of the weights, times ``1 / sqrt(fan_in)``."""
        signs = {}
        for _, weight in partnered_weights(network):
            signs[weight] = weight.detach().sign() * fan_in(weight) ** -0.5
        return signs
