"""Dual propagation: every state is a pair, nudged both ways; the pair's difference is the credit.

    s_L^+ = h_L - (1 - alpha) beta dCE/dh_L,    s_L^- = h_L + alpha beta dCE/dh_L,
    s_l^+ = h_l + (1 - alpha) J_l(s_l^+)^T d_{l+1},    s_l^- = h_l - alpha J_l(s_l^-)^T d_{l+1},
    d_l = s_l^+ - s_l^-
    embedding and blocks descend -<d_{l+1}, alpha F_l(s_l^+) + (1 - alpha) F_l(s_l^-)> / beta,
    a_l = -d_{l+1} / beta
    one pass from the top down, `steps` fixed-point iterations from h_l in each layer;
    F_l: h_l -> h_{l+1},    J_l: Jacobian of F_l,    CE: loss of a single sample

With alpha 1/2, pairs are nearly saddles of
(CE(s_L^+) + CE(s_L^-)) / 2 + sum_l (P_l - M_l) / (4 beta).
Here P_l = ||s_{l+1}^+ - F_l(s_l^+)||^2 + ||s_{l+1}^+ - F_l(s_l^-)||^2, and M_l has s_{l+1}^- in
place of s_{l+1}^+.
A linear block's weights get the gradient -d_{l+1} (s_l^+ + s_l^-)^T / (2 beta). As beta -> 0, a_l
tends to the gradient; if F_l is linear, it is the gradient. If F_l is smooth, the error is of order
beta^2 with alpha 1/2, and of order beta with any other alpha. With ReLU a sample errs if its pair
straddles a kink, and the number of these samples is of order beta.

Source: Hoier, Staudt, Zach 2023 (arXiv 2302.01228), alpha 1/2; any alpha: Hoier, Zach 2024 (arXiv
    2402.08573), whose stable variant nudges s^+ by 1 - alpha and s^- by alpha, as here.
Constants: beta 0.01, from the 2024 code for ImageNet32x32 with alpha 1/2. The 2023 code has beta 1
    for the gradient of the batch mean, which equals beta = 2 / batch size here.
Ours: F_l is the whole block, with its activation, and s_l needs `steps` iterations. A single one
    would leave J_l at h_l, and -d / beta would be the gradient at any beta. The authors' F_l is
    linear, apart from pooling. Their s_l has a closed form, the activation of its inputs from below
    and above, and their updates have no derivative of the activation; the rules agree as beta -> 0.
    The 2024 code visits the layers 16 times, upwards. We linearise CE at h_L, the authors at the
    logits.
Cost: the forward pass, and 2 (`steps` + 1) forward and backward passes through the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fa_audit.methods.method import Credits, Method, Network, Trace, added, loss_gradients


@dataclass(frozen=True)
class DualPropagation(Method):
    beta: float = 0.01  # strength of the nudge
    alpha: float = 0.5  # share of beta in s^-; 1/2 nudges both ways alike
    steps: int = 2  # fixed-point iterations for each pair

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return every pair's difference divided by -beta, ``(B, d)``, and the objective."""
        (top,) = loss_gradients(trace, labels, (trace.head_input,))
        differences, predicted = [-self.beta * top], []
        for layer in reversed(range(network.depth)):
            h, above = trace.states[layer].detach(), differences[-1]
            plus, minus = self._moves(network, layer, h, above)
            up, down = (network.split(layer, s)[1] for s in (h + plus, h - minus))
            predicted.append(self.alpha * up + (1 - self.alpha) * down)
            # The sum of both moves keeps digits that the difference of the states would lose.
            differences.append(plus + minus)
        pairs = zip(differences, [*predicted, trace.states[0]], strict=True)
        objective = added((d * p).sum() for d, p in pairs) / (-self.beta * len(labels))
        slopes = (network.read_gradient(d / -self.beta) for d in reversed(differences))
        return Credits.bottom_up(slopes, normalise=False, objective=objective)

    def _moves(
        self, network: Network, layer: int, h: Tensor, above: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return ``s^+ - h`` and ``h - s^-`` of `layer`, shaped like `h`; `above` is the next
        layer's ``s^+ - s^-``.
        """
        plus = minus = torch.zeros_like(h)
        for _ in range(self.steps):
            plus = (1 - self.alpha) * pulled(network, layer, h + plus, above)
            minus = self.alpha * pulled(network, layer, h - minus, above)
        return plus, minus


def pulled(network: Network, layer: int, h: Tensor, difference: Tensor) -> Tensor:
    """Return ``J^T d`` of block `layer` at `h`, shaped like `h`, detached."""
    h = h.detach().requires_grad_()
    return torch.autograd.grad(network.split(layer, h)[1], h, difference)[0]
