"""Forward-forward: every layer has its own loss, which separates images with the right label from those with another.

    G = mean(h^2),    loss = log(1 + exp(-s (G - 1))),    s = +1: the image with its label, -1: with a wrong label
    h_0 = embed(x with label),  h_{l+1} = split_l(h_l / rms(h_l)), its input detached
    embedding and blocks descend the mean of both losses, summed over layers
    a_l = (d loss^{+1} / dh_{l+1}^{+1} + d loss^{-1} / dh_{l+1}^{-1}) / 2,    embedding: the same of h_0
    d loss^s / dh = -2 s sigmoid(-s (G - 1)) h / n,    n: values of a state

A label is drawn over the first C values of the image: its largest value at the label, its smallest elsewhere.

Source: Hinton 2022 (arXiv 2212.13345): G of squares, inputs of unit length, negatives of a wrong label that the
network finds probable. The threshold of one per value and the 1e-8 beside the rms are loeweX/Forward-Forward's. Ours:
a mean for his sum, whose loss saturates in wide states; the negative is the most probable wrong class of the plain
image where he draws one, since credits draw nothing; skips, which add the normalised input; the overlay's values.

It classifies by the head, which the engine trains by cross-entropy on the plain image's forward pass: no label is near
a test pass. Accuracy says what a linear head makes of the features, not which label has most goodness. An audit has
a_l, the slope of both losses as the states of both passes move alike, beside the gradient of the plain image's
cross-entropy, which nothing descends: a cosine near 0 means another objective, not a wrong gradient; an equal frozen
baseline, that the features do not help. Constants: none. Cost: three forward passes, two backward passes within blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fa_audit.methods.method import Credits, Method, one_hot
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Trace


@dataclass(frozen=True)
class ForwardForward(Method):
    own_objective: ClassVar[bool] = True

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return the mean gradients of both passes' losses, ``(B, d)``, and the mean of the losses."""
        true = one_hot(labels, trace.logits)
        wrong = one_hot(trace.logits.detach().masked_fill(true.bool(), -torch.inf).argmax(dim=1), trace.logits)
        positive, negative = (states_of(network, overlaid(trace.x, label)) for label in (true, wrong))
        losses = [losses_of(h, 1) + losses_of(other, -1) for h, other in zip(positive, negative, strict=True)]
        slopes = torch.autograd.grad([part.sum() / 2 for part in losses], positive + negative, retain_graph=True)
        moves = map(torch.add, slopes[: len(positive)], slopes[len(positive) :])
        embedding, *blocks = map(network.read_gradient, moves)
        return Credits(tuple(blocks), embedding, normalise=False, objective=torch.stack(losses).sum(0).mean() / 2)


def overlaid(x: Tensor, label: Tensor) -> Tensor:
    """Return images like `x` whose first C values are `label`, one-hot ``(B, C)``, between their extremes; a leaf."""
    flat = x.flatten(1)
    least, most = flat.aminmax(dim=1, keepdim=True)
    drawn = torch.cat([most.where(label.bool(), least), flat[:, label.shape[1] :]], dim=1)
    return drawn.reshape(x.shape).detach().requires_grad_()


def states_of(network: Network, x: Tensor) -> list[Tensor]:
    """Return ``h_0..h_L``, each in a graph of its own layer, which it has also where nothing learns."""
    states = [network.embed(x)]
    for layer in range(len(network.blocks)):
        states.append(network.split(layer, unit(states[-1].detach()).requires_grad_())[1])
    return states


def unit(h: Tensor) -> Tensor:
    """Return a state divided by the root mean square of each sample's values."""
    return (h.flatten(1) / (h.flatten(1).square().mean(dim=1, keepdim=True).sqrt() + 1e-8)).reshape(h.shape)


def losses_of(h: Tensor, sign: int) -> Tensor:
    """Return ``log(1 + exp(-sign (mean(h^2) - 1)))`` of every sample, ``(B,)``."""
    return F.softplus(-sign * (h.flatten(1).square() - 1).mean(dim=1))
