"""PEPITA: a second pass reads the input plus the projected error; its change of states is the
credit.

    e = softmax(logits) - y,    x^err = x + range(x) F e,
    range: largest minus smallest value of the sample's input
    F in R^{inputs x C}, entries uniform in +-0.05 sqrt(6 / inputs)
    a_l = h_{l+1} - h_{l+1}^err,    embedding: h_0 - h_0^err
    blocks descend <f_l(h_l^err), a_l>, the embedding <embed(x^err), h_0 - h_0^err>

To first order a_l = -range(x) D_{l+1} F e, with D_{l+1} the Jacobian of h_{l+1} with respect to the
input. Its sign is right if F is near a negative multiple of the network's own input gradient;
according to the source, training leads to that.

Source: Dellaferrera, Kreiman 2022 (arXiv 2201.11665); sign of F e, mean 0 and scale 0.05 sqrt(6 /
    inputs) as in their code (GiorgiaD/PEPITA, main_pytorch.py), whose pixels are in [0, 1].
Ours: the factor range(x), because our pixels are standardised (it is 4.1 for a CIFAR-10 image with
    black and white, 3.8 on average over augmented images); the head learns from the cross-entropy
    of the first pass, theirs from the error of the second; no dropout (theirs has one mask for both
    passes); states after whole blocks, skips included; a block's gradient is exact and includes the
    slopes of its nonlinearities, which theirs leaves out.
Constants: strength 0.05, theirs.
Cost: two forward passes, one backward pass within blocks, and the product with F.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fa_audit.methods.method import Credits, Method, Network, Trace, output_error
from fa_audit.networks.trace import trace as run


@dataclass(frozen=True)
class PEPITA(Method):
    random_feedback: ClassVar[bool] = True

    strength: float = 0.05  # scale of F, relative to the limits of a He-uniform initialisation

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return a module with the random projection ``F``, ``(inputs, C)``."""
        state, inputs = nn.Module(), prod(network.image_shape)
        drawn = 2 * torch.rand(inputs, network.classes, generator=generator) - 1
        state.register_buffer("F", self.strength * (6 / inputs) ** 0.5 * drawn)
        return state

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return the differences between the states of the two passes, ``(B, d)``, and an
        objective whose gradient flows through the second pass only.
        """
        least, most = trace.x.flatten(1).aminmax(dim=1, keepdim=True)
        shift = (most - least) * (output_error(trace, labels) @ state.F.T)
        second = run(network, trace.x + shift.reshape(trace.x.shape), local=True)
        moves = [(h - other).detach() for h, other in zip(trace.states, second.states, strict=True)]
        outputs = (second.states[0], *second.residuals)
        products = [(f * a).sum() for f, a in zip(outputs, moves, strict=True)]
        objective = torch.stack(products).sum() / len(labels)
        slopes = map(network.read_gradient, moves)
        return Credits.bottom_up(slopes, normalise=False, objective=objective)
