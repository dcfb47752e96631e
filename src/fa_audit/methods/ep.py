"""Equilibrium propagation: states relax towards a lower loss, and weights learn from them.

    E = 1/2 ||h_0 - embed(x)||^2 + 1/2 sum_l ||h_{l+1} - h_l - f_l(h_l)||^2          per sample
    free phase: the forward pass, E = 0
    nudged phase: from there, T steps h <- h - alpha d(E + beta CE)/dh
    embedding and blocks descend E_nudged / beta; the head descends the true CE
    a_l = -(h_{l+1}^nudged - h_{l+1}^free) / beta          (audited; it trains nothing)

As beta -> 0 and T -> infinity the update is backpropagation's; in smooth networks with an error of
order beta. `symmetric` averages the updates from +beta and -beta, which leaves an error of order
beta^2. With 20 steps the nudge has hardly reached the lowest states: their update points along the
gradient, but is several times shorter.

The audited credit tends to a_embed = g_0, a_l = g_{l+1} + J_l a_{l-1}: it also has the gradients of
lower states, carried up, so that its cosine with g_{l+1} is below 1 by construction.

Source: Hao, Wan, Zhai 2026, whose energy is that of predictive coding; Scellier, Bengio 2017;
    symmetric nudging: Laborieux, Ernoult, Scellier, Bengio, Grollier, Querlioz 2021. In the latter
    two the layers of a Hopfield network drive each other, also in the free phase, and the network
    predicts by its equilibrium, so that their credits differ from these. Their last layers learn
    from nudged states, the head here from those of the free phase.
Constants: beta 0.5 and T 20 are the paper's (Hao, Wan, Zhai 2026); alpha 0.2 and the symmetric
    option are ours. E's curvature in a chain of identities is at most 4, and near 4 in long chains,
    so that steps above about 0.5 diverge.
Cost: the forward pass, and per nudged phase T + 1 passes through the blocks and T through the head,
    forward and backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fa_audit.methods.method import Credits, Method, Network, Trace, added

States = tuple[Tensor, ...]


@dataclass(frozen=True)
class EP(Method):
    """Equilibrium propagation.

    Attributes:
        beta: strength of the nudge.
        steps: T, gradient steps of the nudged phase.
        alpha: step size of the nudged phase.
        symmetric: nudge with +beta and with -beta, and average both updates.
    """

    beta: float = 0.5
    steps: int = 20
    alpha: float = 0.2
    symmetric: bool = False

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return the credits ``(h^free - h^nudged) / beta``, ``(B, d)``, and the objective
        ``E_nudged / beta``, a mean over samples; both are averaged over the nudged phases.
        """
        free = tuple(h.detach() for h in trace.states)
        # One phase has an error of order beta, the mean of two phases an error of order beta^2.
        betas = (self.beta, -self.beta) if self.symmetric else (self.beta,)
        phases, objectives, moves = len(betas), [], []
        for beta in betas:
            nudged = relaxed(network, free, labels, beta, self.steps, self.alpha)
            objectives.append(energy(network, trace.states[0], nudged) / beta)
            moves.append([(h - other) / beta for h, other in zip(free, nudged, strict=True)])
        objective = added(objectives) / (phases * len(labels))
        means = (added(of_phases) / phases for of_phases in zip(*moves))
        slopes = map(network.read_gradient, means)
        return Credits.bottom_up(slopes, normalise=False, objective=objective)


def relaxed(
    network: Network, free: States, labels: Tensor, beta: float, steps: int, alpha: float
) -> States:
    """Take `steps` gradient steps of size `alpha` down ``E + beta CE`` from `free`; return the
    detached states.
    """
    states = free
    for _ in range(steps):
        # New leaves in every step, so that no gradient goes through earlier steps.
        states = tuple(h.detach().requires_grad_() for h in states)
        loss = F.cross_entropy(network.head(states[-1]), labels, reduction="sum")
        total = energy(network, free[0], states) + beta * loss
        slopes = torch.autograd.grad(total, states)
        states = tuple(h - alpha * slope for h, slope in zip(states, slopes, strict=True))
    return tuple(h.detach() for h in states)


def energy(network: Network, embedded: Tensor, states: States) -> Tensor:
    """Return ``E``, summed over samples: how far `states` are from a forward pass.

    Args:
        embedded: ``embed(x)``.
        states: ``h_0..h_L``.
    """
    predicted = predictions(network, embedded, states)
    return added((h - p).square().sum() for h, p in zip(states, predicted, strict=True)) / 2


def predictions(network: Network, embedded: Tensor, states: States) -> States:
    """Predict every state from the one before it: `embedded`, then each block's output."""
    return (embedded, *(network.split(layer, h)[1] for layer, h in enumerate(states[:-1])))
