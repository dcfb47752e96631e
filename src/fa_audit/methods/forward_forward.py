"""Forward-forward: every layer's loss separates images with right and with wrong labels.

    G = sum(h^2) - d,    loss = log(1 + exp(-s G)),
    s = +1: the image with its label, -1: with a wrong label
    h_0 = embed(x / rms(x)), x with label;  h_{l+1} = F_l(h_l / rms(h_l)), its input detached;
    F_l: block l with its skip
    embedding and blocks descend the mean of the losses for s = +1 and -1, summed over layers
    a_l = (d loss^{+1} / dh_{l+1}^{+1} + d loss^{-1} / dh_{l+1}^{-1}) / 2,
    embedding: the same with h_0
    wrong label: (y + 1 + floor(<x, r>) mod (C - 1)) mod C, with a new r ~ N(0, C^2) for every
        minibatch

A label is written over the first C values of the image: the image's largest value at the label's
place, its smallest at the others.

`classify` takes the label with the largest G, summed over all layers but the first.
`classify_neutral` takes the largest output of a softmax layer, which learns beside the network: it
reads the states of all layers but the first, divided by their rms, of an image with a neutral
label: at each of the C places the smallest value plus 1/C of the image's range.

Source: Hinton 2022 (arXiv 2212.13345): G is a sum of squares; both ways to classify.
    From his code (ffcode.zip, ffnew.m): the threshold d, 1 for each unit; layers read images and
    states of rms 1.
    From loeweX/Forward-Forward: uniform wrong labels, where Hinton's code draws probable ones, and
    the 1e-8 that is added to the rms; here the rms is sqrt(mean h^2 + 1e-16).
Ours: wrong labels from <x, r>, since `credits` must not draw random numbers (as r varies,
    floor(<x, r>) is uniform modulo C - 1); the values that replace pixels; G as a mean over tokens
    or positions; skips, with which a block's G starts near 0; states after whole blocks, where his
    follow a ReLU; no peer normalisation; a softmax layer with bias, as torch initialises it
    (loeweX: no bias, zeros); BatchNorm normalises right and wrong images together, and `classify`
    uses its running statistics, which are those of the plain pass.

The engine trains the head on the network's plain forward pass, without label; no method can change
that. So the accuracy of a run shows what a linear head makes of the last features. An audit
compares a_l with the gradient of the plain image's cross-entropy. No layer descends that loss, so a
cosine near 0 shows that the objectives differ.
Cost: four forward passes, two backward passes within blocks.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.core.errors import AuditError
from fa_audit.methods.method import (
    Credits,
    Method,
    Network,
    Trace,
    added,
    layer_seed,
    one_hot,
    state_widths,
)
from fa_audit.networks.trace import untouched


class ForwardForward(Method):
    own_objective: ClassVar[bool] = True

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return a module with the random vector ``r``, ``(inputs,)``, that picks wrong labels, and
        the linear layer ``softmax`` of `classify_neutral`.

        Raises:
            AuditError: an image has fewer values than there are classes, so no label fits into it.
        """
        state, inputs = nn.Module(), prod(network.image_shape)
        if inputs < network.classes:
            raise AuditError(
                f"forward_forward: found images of {inputs} values and {network.classes} classes;"
                " expected at least one value for each class, since labels replace the first ones."
            )
        state.register_buffer("r", network.classes * torch.randn(inputs, generator=generator))
        widths = state_widths(network)
        with layer_seed(generator):
            state.softmax = nn.Linear(sum(widths[1:] or widths), network.classes)
        return state

    def auxiliary_loss(
        self,
        network: Network,
        trace: Trace,
        labels: Tensor,
        state: Any,
        randomness: torch.Generator,
    ) -> Tensor:
        """Return the cross-entropy of the softmax layer."""
        return F.cross_entropy(state.softmax(neutral_states(network, trace.x)), labels)

    def update_state(self, network: Network, state: Any, randomness: torch.Generator) -> None:
        state.r.normal_(std=network.classes, generator=randomness)

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return the credits ``(B, d)``, means over the right and the wrong label. The objective is
        the mean loss, summed over layers.
        """
        drawn = (trace.x.flatten(1) @ state.r).floor().long()
        # In torch, as in Python, the remainder of a negative number is not negative.
        wrong = (labels + 1 + drawn % (network.classes - 1)) % network.classes
        versions = [overlaid(trace.x, one_hot(label, trace.logits)) for label in (labels, wrong)]
        states = states_of(network, torch.cat(versions))
        sign = torch.cat([-torch.ones_like(labels), torch.ones_like(labels)])
        objective = added(F.softplus(sign * goodness(h)).mean() for h in states)
        slopes = torch.autograd.grad(objective * len(labels), states, retain_graph=True)
        # The first half of the rows has the right labels, the second half the wrong ones.
        means = (network.read_gradient(torch.add(*slope.chunk(2))) for slope in slopes)
        return Credits.bottom_up(means, normalise=False, objective=objective)


@torch.no_grad()
def classify(network: Network, x: Tensor) -> Tensor:
    """Return for each image the label with the largest goodness, ``(B,)``.

    Goodness is summed over ``h_1..h_L``; a network without blocks has only ``h_0``.
    """
    sums = []
    with untouched(network):
        for label in torch.eye(network.classes).to(x):
            states = states_of(network, overlaid(x, label))
            sums.append(added(map(goodness, states[1:] or states)))
    return torch.stack(sums).argmax(dim=0)


@torch.no_grad()
def classify_neutral(network: Network, x: Tensor, state: Any) -> Tensor:
    """Return for each image the largest output of the softmax layer in a trained learner's `state`,
    ``(B,)``.
    """
    with untouched(network):
        outputs: Tensor = state.softmax(neutral_states(network, x))
    return outputs.argmax(dim=1)


@torch.no_grad()
def neutral_states(network: Network, x: Tensor) -> Tensor:
    """Return side by side the vectors of ``h_1..h_L``, divided by the states' rms, of images with a
    neutral label.
    """
    classes = network.classes
    states = states_of(network, overlaid(x, x.new_full((classes,), 1 / classes)))
    return torch.cat([network.read(of_unit_size(h)) for h in states[1:] or states], dim=1)


def overlaid(x: Tensor, label: Tensor) -> Tensor:
    """Write `label`, ``(C,)`` or per image ``(B, C)``, into the first C values of images `x`.

    A label's 0 and 1 become the image's smallest and largest value.
    """
    flat = x.flatten(1)
    least, most = flat.aminmax(dim=1, keepdim=True)
    return torch.cat([least.lerp(most, label), flat[:, label.shape[-1] :]], dim=1).reshape(x.shape)


def states_of(network: Network, x: Tensor) -> list[Tensor]:
    """Return ``h_0..h_L``, each with the graph of its own layer only, even for frozen layers."""
    states = [network.embed(of_unit_size(x).requires_grad_())]
    for layer in range(network.depth):
        states.append(network.split(layer, of_unit_size(states[-1]).requires_grad_())[1])
    return states


def of_unit_size(h: Tensor) -> Tensor:
    """Divide images or states by their rms; the result is detached."""
    # 1e-8 squared, since torch adds eps under the root.
    return F.rms_norm(h.detach(), h.shape[1:], eps=1e-16)


def goodness(h: Tensor) -> Tensor:
    """Return a state's goodness ``(B,)``: the sum of the squares of its d features, minus d,
    averaged over tokens or positions.
    """
    return h.shape[-1 if h.dim() == 3 else 1] * (h.flatten(1).square() - 1).mean(dim=1)
