"""Difference target propagation: learned inverses carry targets down to every state.

    t_L = h_L - eta dCE/dh_L,    t_l = h_l + g_l(t_{l+1}) - g_l(h_{l+1}),
    a_{l-1} = (h_l - t_l) / eta for each sample; a_{-1} is the credit of the embedding,
    g_l descends ||g_l(F_l(h_l + n)) - (h_l + n)||^2 / d,    n ~ sigma rms(h_l) N(0, 1),
    rms(h_l): of each sample,
    F_l: h_l -> h_{l+1}
    g_l(v) = u_l(v), or v + u_l(v) around a block with a skip,    u_l: one hidden layer, GELU

With exact inverses a_{l-1} = J_l^{-1} a_l, the Gauss-Newton direction; backpropagation has
J_l^T a_l.

Source: Lee, Zhang, Fischer, Bengio 2015 (arXiv 1412.7525).
Ours: targets from each sample's own loss (the authors' loss is the mean of a batch of 100, so that
    the same eta moves a target a hundredth as far); noise relative to the rms (their states are
    tanh units). Inverses have 256 hidden units (theirs: single tanh layers), take and return vectors
    even if states are maps, and learn in the same step as the network.
Constants: eta 0.33 and sigma 0.36 from the authors' code for MNIST; inverse_rate (the inverses'
    learning rate over the network's) 7 from Meulemans et al. 2020 (arXiv 2006.14331) for DTP on
    MNIST. Their 19 for CIFAR-10 is too much here at a learning rate of 3e-3. The inverse_rate of
    Lee et al. is 0.34, and they train inverses and network in turns, an epoch each.
Cost: BP plus a forward pass of the blocks; three forward and one backward pass of the inverses.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.methods.bridge import rms
from fa_audit.methods.method import (
    Credits,
    Method,
    Network,
    Trace,
    added,
    layer_seed,
    loss_gradients,
    state_widths,
)


@dataclass(frozen=True)
class DTP(Method):
    eta: float = 0.33  # step from the last state to its target
    sigma: float = 0.36  # standard deviation of the noise, relative to the state's rms
    hidden: int = 256  # units of the hidden layer of each inverse
    inverse_rate: float = 7.0  # learning rate of the inverses, as a multiple of the run's

    @property
    def state_rate(self) -> float:
        return self.inverse_rate

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return the nets ``u_l``, one per block, from ``(B, d_{l+1})`` to ``(B, d_l)``."""
        with layer_seed(generator):
            return nn.ModuleList(
                nn.Sequential(nn.Linear(b, self.hidden), nn.GELU(), nn.Linear(self.hidden, a))
                for a, b in pairwise(state_widths(network))
            )

    @torch.no_grad()
    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return every state minus its target, divided by eta: ``(B, d)`` each."""
        with torch.enable_grad():
            (top,) = loss_gradients(trace, labels, (trace.head_input,))
        descending = [network.read_gradient(top)]
        for layer in reversed(range(network.depth)):
            h, above = network.read(trace.states[layer + 1]), descending[-1]
            through = (state[layer](h) - state[layer](h - self.eta * above)) / self.eta
            # The skip adds exactly `above`; h - (h - eta * above) would lose precision.
            descending.append(above + through if skips(network, layer) else through)
        return Credits.bottom_up(reversed(descending))

    def auxiliary_loss(
        self,
        network: Network,
        trace: Trace,
        labels: Tensor,
        state: Any,
        randomness: torch.Generator,
    ) -> Tensor | None:
        """Sum the inverses' mean squared errors on noisy states ``h_l + n``.

        Return None if the network has no blocks.
        """
        misses = []
        for layer, (h, u) in enumerate(zip(trace.states, state)):
            with torch.no_grad():
                v = network.read(h)
                noisy = network.shift(h, self.sigma * rms(v) * noise_like(v, randomness))
                target = network.read(noisy)
                following = network.read(network.split(layer, noisy)[1])
            found = u(following) + following if skips(network, layer) else u(following)
            misses.append((found - target).square().mean())
        return added(misses) if misses else None


def noise_like(v: Tensor, randomness: torch.Generator) -> Tensor:
    """Draw N(0, 1) in the shape of `v`, in float32 on the generator's device; cast to v's type."""
    return torch.randn(v.shape, generator=randomness, device=randomness.device).to(v.dtype)


def skips(network: Network, layer: int) -> bool:
    """Return whether block `layer` adds its input to its output."""
    return network.skip != "none" and network.width_of(layer) == network.width_of(layer + 1)
