"""Predictive coding: states relax towards prediction and label; the remaining error is the credit.

    E = 1/2 ||h_0 - embed(x)||^2 + 1/2 sum_l ||h_{l+1} - F_l(h_l)||^2 + CE(head(h_L), y)
    from the forward pass, where all errors are 0, T steps h <- h - alpha dE/dh; embedding and
        blocks then descend E
    a_l = F_l(h_l) - h_{l+1}, at equilibrium a_{l-1} = J_l^T a_l and a_{L-1} = dCE/dh_L;
    embedding: embed(x) - h_0;    F_l: block l with its skip,    J_l: Jacobian of F_l,
    E: energy of a single sample

This is EP's nudged phase with beta 1. With `fixed`, predictions, Jacobians and dCE/dh_L stay those
of the forward pass. The errors then relax to the exact gradients by a_{l-1} <- a_{l-1} - alpha
(a_{l-1} - J_l^T a_l), and the weights learn from the forward pass's states.

Without `fixed`, states may shrink until the accuracy falls (docs/board.md): LayerNorm in the head
hides the length of h_L, and shorter states pay less energy for the same logits. Without blocks, the
embedding's credit at equilibrium has <a, h_0> = ||a||^2, where the gradient's product is 0.

Source: Whittington, Bogacz 2017; the fixed predictions: Millidge, Tschantz, Buckley 2020 (arXiv
    2006.04182).
Ours: cross-entropy on the logits, not a squared loss; the head learns from the forward pass's
    states also without `fixed`, not from relaxed ones, which hold the label; T 20, which costs as
    much as EP and leaves the errors of the lowest blocks too small (the CNN code of Millidge et al.
    has 50 to 100).
Constants: alpha 0.2, from the code of Millidge et al.
Cost: as EP; fixed: T backward passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fa_audit.methods.ep import States, energy, predictions, relaxed
from fa_audit.methods.method import Credits, Method, Network, Trace


@dataclass(frozen=True)
class PredictiveCoding(Method):
    steps: int = 20  # T, steps of the relaxation
    alpha: float = 0.2  # size of a step
    fixed: bool = False  # hold predictions and Jacobians at the forward pass

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return every state's prediction error, ``(B, d)``. The objective is the energy, or None
        if `fixed`.
        """
        free = tuple(h.detach() for h in trace.states)
        objective = None
        if self.fixed:
            errors = self._fixed_errors(network, free, labels)
        else:
            states = relaxed(network, free, labels, 1.0, self.steps, self.alpha)
            objective = energy(network, trace.states[0], states) / len(labels)
            with torch.no_grad():
                errors = tuple(p - h for p, h in zip(predictions(network, free[0], states), states))
        slopes = map(network.read_gradient, errors)
        return Credits.bottom_up(slopes, normalise=False, objective=objective)

    def _fixed_errors(self, network: Network, free: States, labels: Tensor) -> States:
        """Return each state's relaxed error, with predictions fixed at the states `free`."""
        free = tuple(h.requires_grad_() for h in free)
        with torch.enable_grad():
            loss = F.cross_entropy(network.head(free[-1]), labels, reduction="sum")
            ends = [*predictions(network, free[0], free)[1:], loss]
        errors = tuple(map(torch.zeros_like, free))
        for _ in range(self.steps):
            pulled = torch.autograd.grad(
                ends, free, [*errors[1:], torch.ones_like(loss)], retain_graph=True
            )
            # Predictions, Jacobians and the loss's gradient stay those of the forward pass.
            errors = tuple(a - self.alpha * (a - p) for a, p in zip(errors, pulled))
        return errors
