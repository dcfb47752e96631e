"""Weight mirror: noise through every layer teaches its random feedback weights to mirror its
weights.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,    J_l: Jacobian of block l;
    on the way back each W of head and blocks, also within a block, is replaced by its partner B
    dB = eta mean(y xi^T) - decay B,    y = W xi,    xi ~ N(0, sigma^2), once after every minibatch

E[y xi^T] = sigma^2 W, so that B tends to sigma^2 eta / decay W. A kernel is the matrix of its
flattened windows.

Source: Akrout, Wilson, Humphreys, Lillicrap, Tweed 2019 (arXiv 1904.05391).
Constants: eta 0.01, as in the authors' code; decay, sigma and the number of draws are ours, for B
    -> W itself at a relative error of sqrt(fan_in decay / 2n). The authors' code has weaker noise
    through the activation, too, and rescales B instead of decaying it. Entries of B begin as N(0,
    1/fan_in), ours.
Cost: as uSF, and two products of matrices for every weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fa_audit.methods.fa_layerwise import FALayerwise
from fa_audit.methods.method import Network
from fa_audit.methods.transport import fan_in, partnered_weights

# The least number of draws is a sixth of the fan-in: B is then within 10 degrees of W, whatever its
# size.
FEWEST = 6


@dataclass(frozen=True)
class WeightMirror(FALayerwise):
    eta: float = 0.01  # rate of the mirror
    decay: float = 0.01  # share of B that a step removes
    sigma: float = 1.0  # standard deviation of the noise
    draws: int = 128  # n, noise vectors in a step; more if a weight's fan-in is large

    @torch.no_grad()
    def update_state(self, network: Network, state: Any, randomness: torch.Generator) -> None:
        """Move every partner towards its weight, by noise sent through that weight alone."""
        for name, weight in partnered_weights(network):
            shape = (max(self.draws, fan_in(weight) // FEWEST), fan_in(weight))
            drawn = torch.randn(shape, generator=randomness, device=randomness.device)
            xi = self.sigma * drawn.to(weight.dtype)
            # A kernel is the matrix of its flattened windows.
            grown = (xi @ weight.flatten(1).T).T @ xi / len(xi)
            state.get_buffer(name).mul_(1 - self.decay).add_(grown.view_as(weight), alpha=self.eta)
