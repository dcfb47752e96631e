"""Fixed random-magnitude sign-symmetric feedback: signs of the weights, with fixed magnitudes.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,
    J_l: Jacobian of block l with each W replaced by M o sign(W)
    M = |N(0, 1/fan_in)|, drawn once

Source: Liao, Leibo, Poggio 2016; named frSF in Moskovitz, Litwin-Kumar, Abbott 2018. Not in Hao,
    Wan, Zhai 2026.
Constants: the variance 1/fan_in, ours.
Cost: as uSF.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.methods.fa_layerwise import FALayerwise
from fa_audit.methods.method import Credits, Network, Trace
from fa_audit.methods.transport import Partners, block_weights, transported_credits


class Magnitudes(Partners):
    """A magnitude ``|N(0, 1 / fan_in)|`` for every weight of the blocks, shaped like it."""

    def redraw(self, generator: torch.Generator) -> None:
        super().redraw(generator)
        for buffer in self.buffers():
            buffer.abs_()


class FRSF(FALayerwise):
    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return a magnitude for every weight of the blocks."""
        return Magnitudes(network, generator)

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Carry the output gradient down through present signs with the magnitudes of the state."""
        magnitudes = state.state_dict()
        feedback = {
            weight: magnitudes[name] * weight.detach().sign()
            for name, weight in block_weights(network)
        }
        return transported_credits(network, trace, labels, feedback)
