"""Feedback alignment, layer by layer: fixed random partners of the weights carry gradients back.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,    J_l: Jacobian of block l;    embedding: a_{-1};
    on the way back every matrix or kernel W of blocks and head is replaced by its partner B

Every gradient goes back through the partners instead of the weights, also within blocks and in the
head, as in the source and in most libraries. Skips, normalisations and activations are exact. In
contrast, `fa` replaces the whole Jacobian of a block, skip included, by one random matrix. In the
head `fa` has exact gradients, and within a block it backpropagates the block's credit exactly.

Source: Lillicrap, Cownden, Tweed, Akerman 2016. Not in Hao, Wan, Zhai 2026.
Constants: entries of B ~ N(0, 1/fan_in), ours.
Cost: as `usf`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from fa_audit.methods.method import Network
from fa_audit.methods.transport import Partners, Transported


class FALayerwise(Transported):
    random_feedback: ClassVar[bool] = True

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return a partner B for every weight of blocks and head."""
        return Partners(network, generator)
