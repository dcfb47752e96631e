"""Feedback alignment, layer by layer: fixed random partners of the weights carry gradients back.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,
    J_l: Jacobian of block l with each W replaced by its partner B

This is the rule of its source and of most libraries: only weights are replaced, and skips,
normalisations and activations are exact. The rule `fa` replaces the whole Jacobian of a block, skip
included.

Source: Lillicrap, Cownden, Tweed, Akerman 2016. Not in Hao, Wan, Zhai 2026.
Constants: entries of B ~ N(0, 1/fan_in), ours.
Cost: as uSF.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fa_audit.methods.method import Credits, Method, Network, Trace
from fa_audit.methods.transport import Partners, block_weights, transported_credits


class FALayerwise(Method):
    random_feedback: ClassVar[bool] = True

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return a partner B for every weight of the blocks."""
        return Partners(network, generator)

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Carry the output gradient down through the partners in the state."""
        # By name: Kolen-Pollack's partners are parameters, others buffers.
        partners = state.state_dict()
        feedback = {weight: partners[name] for name, weight in block_weights(network)}
        return transported_credits(network, trace, labels, feedback)
