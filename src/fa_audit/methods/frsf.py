"""Fixed random-magnitude sign-symmetric feedback: signs of the weights, with fixed magnitudes.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,    J_l: Jacobian of block l;    embedding: a_{-1};
    on the way back every matrix or kernel W of blocks and head is replaced by M o sign(W),
    an elementwise product; M = |N(0, 1/fan_in)|, drawn once

Source: Liao, Leibo, Poggio 2016 (arXiv 1510.05067), frSF. They found BatchNorm or Batch Manhattan
    (updates by gradient signs) indispensable; this rule adds neither. Not in Hao, Wan, Zhai 2026.
Constants: the variance 1/fan_in, ours.
Cost: as `usf`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.methods.fa_layerwise import FALayerwise
from fa_audit.methods.method import Network
from fa_audit.methods.transport import Partners


class Magnitudes(Partners):
    """Magnitudes ``|N(0, 1 / fan_in)|``, one tensor per weight, in its shape."""

    def redraw(self, generator: torch.Generator) -> None:
        super().redraw(generator)
        for buffer in self.buffers():
            buffer.abs_()


class FRSF(FALayerwise):
    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return random magnitudes for the weights of blocks and head."""
        return Magnitudes(network, generator)

    def partners(self, network: Network, state: Any) -> Mapping[nn.Parameter, Tensor]:
        """Return the current signs of the weights times the magnitudes in `state`."""
        magnitudes = super().partners(network, state)
        return {weight: m * weight.detach().sign() for weight, m in magnitudes.items()}
