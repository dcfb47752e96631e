"""Target propagation with a difference reconstruction loss: inverses learn to recover the noise in
a state from the change that it causes in the logits.

    t_out = z - eta (p - y),    t_L = h_L + g_L(t_out) - g_L(z),
    t_l = h_l + g_l(t_{l+1}) - g_l(h_{l+1})
    a_{l-1} = (h_l - t_l) / eta, per sample;    z = h_{L+1}: logits;
    g_l: as in DTP, and g_L linear
    g_l descends mean (D_l(m_l) - n)^2 / mean n^2 + damping/2 ||parameters||^2,    m_l detached,
    n ~ sigma rms(h_l) N(0, 1),    means over batch and features,    rms(h_l): of each sample
    D_l(m) = g_l(h_{l+1} + m) - g_l(h_{l+1}),    m_l = D_{l+1}(... D_L(z(h_l + n) - z)),
    z(h): logits from h on

In a linear network, let J_l = dz/dh_l, C x d. The product of the inverses from the logits down to
h_l tends to the pseudo-inverse of J_l, so that credits are Gauss-Newton steps of least norm. DTP
inverts single blocks, and its credits are such steps only if blocks are invertible. With damping
and an inverse of a single matrix, as g_L, D_L tends to A^T (A A^T + lambda)^{-1}, where A = J_L and
lambda = damping d / 2.

Source: Meulemans, Carzaniga, Suykens, Sacramento, Grewe 2020 (arXiv 2006.14331), DTPDRL.
Constants: eta, sigma and damping are rounded from the authors' code for CIFAR-10, where damping is
    a decay of the feedback, the loss is a batch mean, and noise has one size for all states.
    inverse_rate is that of `dtp`, our choice. The authors' is 0.28, but their inverses first learn
    alone for ten epochs, then one step beside each of the network's, and two epochs alone after
    each epoch.
Ours, as in DTP: targets from each sample's own loss (theirs: the mean of 128), noise relative to
    the rms, and the form of inverses (theirs: single tanh layers). g_L is linear: with a hidden
    layer in g_L, the credits raised the loss of a short training. Numbers are float32, but for the
    differences in credits; theirs are float64.
Cost: BP plus L (L + 1) / 2 blocks and L + 1 heads forward, (L + 1) (L + 4) inverses forward and
    2 (L + 1) backward.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.methods.bridge import rms
from fa_audit.methods.dtp import DTP, noise_like, skips
from fa_audit.methods.method import Credits, Network, Trace, added, layer_seed, output_error

# A floor for the noise's mean square, which is 0 if a state is all zeros.
SMALLEST = 1e-30


@dataclass(frozen=True)
class DTPDRL(DTP):
    eta: float = 0.026  # step from the logits to their target
    sigma: float = 0.1  # standard deviation of the noise, relative to the state's rms
    damping: float = 1.3e-5  # weight of the inverses' squared parameters in their loss

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return the inverses of DTP, and a linear one from the logits to ``h_L``."""
        inverses = super().init_state(network, generator)
        with layer_seed(generator):
            top = nn.Linear(network.classes, network.width_of(network.depth))
        return nn.ModuleList([*inverses.children(), top])

    @torch.no_grad()
    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return every state minus its target, divided by eta: ``(B, d)`` each."""
        # In float32, rounding hides the moves of samples whose error is small.
        found, above, exact = [], output_error(trace, labels).double(), deepcopy(state).double()
        for layer in reversed(range(len(exact))):
            above = returned(network, trace, exact, layer, -self.eta * above) / -self.eta
            found.append(above.to(trace.logits.dtype))
        return Credits.bottom_up(reversed(found))

    def auxiliary_loss(
        self,
        network: Network,
        trace: Trace,
        labels: Tensor,
        state: Any,
        randomness: torch.Generator,
    ) -> Tensor:
        """Return the damping term plus the inverses' squared errors relative to the noise."""
        misses = []
        for layer, h in enumerate(trace.states):
            with torch.no_grad():
                v = network.read(h)
                noise = self.sigma * rms(v) * noise_like(v, randomness)
                move = network.logits_from(layer, network.shift(h, noise)) - trace.logits
                for higher in reversed(range(layer + 1, len(state))):
                    move = returned(network, trace, state, higher, move)
            miss = (returned(network, trace, state, layer, move) - noise).square().mean()
            misses.append(miss / noise.square().mean().clamp_min(SMALLEST))
        size = added(p.square().sum() for p in state.parameters())
        return added(misses) + self.damping / 2 * size


def returned(network: Network, trace: Trace, state: Any, layer: int, move: Tensor) -> Tensor:
    """Return ``D_l(move)`` for ``l = layer``: the change of ``h_l``, ``(B, d)``, that the inverse
    gives for `move`, a change of ``h_{l+1}`` or, for the last l, of the logits.
    """
    last = layer == network.depth
    v = trace.logits if last else network.read(trace.states[layer + 1])
    v = v.detach().to(move.dtype)
    found: Tensor = state[layer](v + move) - state[layer](v)
    return found if last or not skips(network, layer) else found + move
