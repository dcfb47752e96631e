"""Kolen-Pollack: random feedback weights get the forward weights' updates and decay.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,    J_l: Jacobian of block l;    embedding: a_{-1};
    on the way back every matrix or kernel W of blocks and head is replaced by its partner B
    dB = dW at every step, and AdamW's decay multiplies W - B by 1 - lr * decay: B converges to W

AdamW's step depends only on the gradient, and its decay only on the weight. B gets W's gradient,
which `clip` counts once, and so makes the same step as W.

Source: Kolen, Pollack 1994; Akrout, Wilson, Humphreys, Lillicrap, Tweed 2019, whose code has
    a decay factor of 1: there W - B stays as it began. Not in Hao, Wan, Zhai 2026.
Constants: entries of B ~ N(0, 1/fan_in), ours; the decay is that of the run (0.01 in Hao, Wan,
    Zhai), which is weak: over a run W - B shrinks by the factor exp(-sum of lr * decay).
Cost: as `usf`, and the optimiser's step for the feedback weights.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from fa_audit.methods.fa_layerwise import FALayerwise
from fa_audit.methods.method import Network
from fa_audit.methods.transport import Partners, partnered_weights


class KolenPollack(FALayerwise):
    decays_state: ClassVar[bool] = True

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return a partner B for every weight of blocks and head; the optimiser moves it."""
        return nn.ParameterDict(Partners(network, generator).named_buffers())

    def update_state(self, network: Network, state: Any, randomness: torch.Generator) -> None:
        # A partner that has its weight's gradient takes the same AdamW step as the weight.
        for name, weight in partnered_weights(network):
            state[name].grad = weight.grad
