"""Weight mirror: noise through a layer's weights teaches its feedback weights to mirror them.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,    J_l: Jacobian of block l;    embedding: a_{-1};
    on the way back every matrix or kernel W of blocks and head is replaced by its partner B
    dB = eta mean(y xi^T) - decay B,    y = W xi,    xi ~ N(0, sigma^2), once for every minibatch,
    before W's step; the mean is over n draws: `draws` or, if greater, fan_in // 6

E[y xi^T] = sigma^2 W, so that B tends to (sigma^2 eta / decay) W. A kernel counts as the matrix
that multiplies flattened windows.

Source: Akrout, Wilson, Humphreys, Lillicrap, Tweed 2019 (arXiv 1904.05391).
Constants: ours. With them B tends to W itself, at a relative error of sqrt(fan_in decay / 2n).
Ours: the decay (in the authors' code B grows without one, since a rescaled copy is thrown away);
    Gaussian noise (theirs is uniform in +-0.05, passes bias and activation, too, after W's step,
    and B adds 0.01 times the sum over 128 draws, not the mean); entries of B that begin as
    N(0, 1/fan_in), with no epoch of noise before training.
Cost: as `usf`, and two products of matrices for every weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fa_audit.methods.fa_layerwise import FALayerwise
from fa_audit.methods.method import Network
from fa_audit.methods.transport import fan_in, partnered_weights

# A step draws at least fan_in / FEWEST noise vectors: B then comes within 10 degrees of any W.
FEWEST = 6


@dataclass(frozen=True)
class WeightMirror(FALayerwise):
    eta: float = 0.01  # learning rate of B
    decay: float = 0.01  # share of B that a step removes
    sigma: float = 1.0  # standard deviation of the noise
    draws: int = 128  # n, noise vectors in a step; more if a weight's fan-in is large

    @torch.no_grad()
    def update_state(self, network: Network, state: Any, randomness: torch.Generator) -> None:
        """Move every partner in `state` towards its weight, by noise sent through that weight."""
        for name, weight in partnered_weights(network):
            shape = (max(self.draws, fan_in(weight) // FEWEST), fan_in(weight))
            drawn = torch.randn(shape, generator=randomness, device=randomness.device)
            xi = self.sigma * drawn.to(weight.dtype)
            # A kernel counts as the matrix that multiplies flattened windows.
            grown = (xi @ weight.flatten(1).T).T @ xi / len(xi)
            state.get_buffer(name).mul_(1 - self.decay).add_(grown.view_as(weight), alpha=self.eta)
