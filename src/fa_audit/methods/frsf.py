"""Fixed random-magnitude sign-symmetric feedback: the signs follow the weights, the magnitudes
never change.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,    J_l: Jacobian of block l with each W replaced by M
    o sign(W) M = |N(0, 1/fan_in)|, drawn once

Source: Liao, Leibo, Poggio 2016; named frSF in Moskovitz, Litwin-Kumar, Abbott 2018. Not in Hao,
Wan, Zhai 2026. Constants: the variance 1/fan_in, ours. Cost: as uSF.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fa_audit.methods.method import Credits, Method
from fa_audit.methods.transport import block_weights, fan_in, transported_credits
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Trace


class Magnitudes(nn.Module):
    """A buffer of magnitudes ``|N(0, 1/fan_in)|`` for every weight of the blocks, shaped like it."""

    def __init__(self, network: Network, generator: torch.Generator) -> None:
        super().__init__()
        for name, weight in block_weights(network):
            self.register_buffer(name, torch.empty(weight.shape, dtype=weight.dtype))
        self.redraw(generator)

    def redraw(self, generator: torch.Generator) -> None:
        """Draw every magnitude anew."""
        for buffer in self.buffers():
            drawn = torch.randn(buffer.shape, generator=generator, device=generator.device)
            drawn = drawn.abs() * fan_in(buffer) ** -0.5
            buffer.copy_(drawn)


@dataclass(frozen=True)
class FRSF(Method):
    random_feedback: ClassVar[bool] = True

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        return Magnitudes(network, generator)

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        magnitudes = dict(state.named_buffers())
        feedback = {
            weight: magnitudes[name] * weight.detach().sign()
            for name, weight in block_weights(network)
        }
        return transported_credits(network, trace, labels, feedback)
