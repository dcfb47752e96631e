"""Feedback alignment, layer by layer: gradients travel back through a fixed random partner of every
weight.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,
    J_l: Jacobian of block l with each W replaced by its partner B

This is the rule as its source and most libraries have it: skips, normalisations and activations are
passed exactly, and only the weights are replaced. The rule `fa`, block by block, replaces the whole
Jacobian, skip included.

Source: Lillicrap, Cownden, Tweed, Akerman 2016. Not in Hao, Wan, Zhai 2026.
Constants: entries of B ~ N(0, 1/fan_in), ours.
Cost: as uSF.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fa_audit.methods.method import Credits, Method
from fa_audit.methods.transport import Partners, block_weights, transported_credits
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Trace


@dataclass(frozen=True)
class FALayerwise(Method):
    random_feedback: ClassVar[bool] = True

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return a partner B for every weight of the blocks."""
        return Partners(network, generator)

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        partners = state.state_dict()
        feedback = {weight: partners[name] for name, weight in block_weights(network)}
        return transported_credits(network, trace, labels, feedback)
