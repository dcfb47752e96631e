"""Forward gradient with local losses: a block learns from its loss's change along a random
direction.

    a_l = (n . dloss/dv) n,    n ~ N(0, I), for every sample, state and minibatch;
    embedding: the same on h_0
    loss = CE(A v + b, y),    v: vector of h_{l+1};
    n . dloss/dv = <softmax(A v + b) - y, A n>, a forward derivative
    blocks and embedding descend <v, a_l>; A and b descend loss; the head descends its cross-entropy

a_l is the gradient of `local_pred` on average over n. The credit of a single n is
sqrt(d + 2) times as long as this gradient, and points almost anywhere, at a mean cosine of
sqrt(2 / (pi d)).
Audits see single draws, so this variance appears as cosines near 0.

Source: Ren, Kornblith, Liao, Hinton 2023 (arXiv 2210.03310), their LG-FG-A. As in their code
    (google-research, local_forward_gradient, train_mixer_supervised.py), local classifiers learn
    from exact gradients, and n is drawn once per step.
Ours: one n for a block, with exact gradients inside the block (theirs: every layer's preactivations
    are perturbed); one loss and one n for a state's vector (theirs: for each patch and group of
    channels); no normalisation before a classifier; the loss on h_0.

`credits` must not draw random numbers, nor may a sample's credit depend on its place in the
batch. So n is a function of the image x, and this function changes with every minibatch: n =
Phi^-1(2 |z - round(z)|), z = c W + w. Here c is 16 fixed random projections of x, with weights from
N(0, 1 / (16 inputs)), and W and w are drawn from N(0, 10^2), again after every step. The argument
of Phi^-1 is clamped to [1e-6, 1 - 1e-6], so that |n_i| < 4.8; otherwise n_i is normal. The n of two
images are independent if the root mean square of the images' difference is above 0.1.
Constants: the numbers of the last paragraph, ours.
Cost: as `local_pred`, and the product with W.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.methods.local_losses import LocalPred
from fa_audit.methods.method import Credits, Network, Trace, added, one_hot, state_widths

_PROJECTIONS, _TURNS = 16, 10.0
# Arguments of Phi^-1 keep this distance from 0 and 1, so that every |n_i| < 4.8.
EDGE = 1e-6


class ForwardGradient(LocalPred):
    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return the classifiers; the matrix ``(inputs, 16)`` that projects images; and for every
        state a matrix ``(17, d)``, which holds ``W`` and, as its last row, ``w``.
        """
        state, inputs = super().init_state(network, generator), prod(network.image_shape)
        drawn = torch.randn(inputs, _PROJECTIONS, generator=generator)
        state.register_buffer("projections", drawn * (inputs * _PROJECTIONS) ** -0.5)
        for nets, width in zip(state.children(), state_widths(network)):
            nets.register_buffer("turns", torch.empty(_PROJECTIONS + 1, width))
        self.update_state(network, state, generator)
        return state

    def update_state(self, network: Network, state: Any, randomness: torch.Generator) -> None:
        for nets in state:
            drawn = torch.randn(nets.turns.shape, generator=randomness, device=randomness.device)
            nets.turns.copy_(_TURNS * drawn)

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return the gradients ``a`` along the perturbations, ``(B, d)``, and an objective: the
        classifiers' losses, and terms of value zero that have the gradient ``a / B``.
        """
        credits, objectives = [], []
        for h, nets, n in zip(trace.states, state, perturbations(trace.x, state), strict=True):
            v, classifier = network.read(h), nets["pred"]
            logits = classifier(v.detach())
            error = logits.detach().softmax(dim=1) - one_hot(labels, logits)
            # The forward derivative <dloss/dv, n>, from the closed form of the loss's slope.
            a = (error * (n @ classifier.weight.detach().T)).sum(dim=1, keepdim=True) * n
            credits.append(a)
            # `along` is zero, and its gradient at v is a / B.
            along = ((v - v.detach()) * a).sum() / len(labels)
            objectives.append(F.cross_entropy(logits, labels) + along)
        return Credits.bottom_up(credits, normalise=False, objective=added(objectives))


def perturbations(x: Tensor, state: Any) -> list[Tensor]:
    """Return this minibatch's direction ``n`` for every state, ``(B, d)`` each."""
    # The column of ones multiplies w, the last row of `turns`.
    codes = F.pad(x.flatten(1) @ state.projections, (0, 1), value=1.0)
    turned = [codes @ nets.turns for nets in state]
    return [torch.special.ndtri((2 * (z - z.round()).abs()).clamp(EDGE, 1 - EDGE)) for z in turned]
