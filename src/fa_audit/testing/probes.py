"""Compute from a learner the credits, gradients, cosines and other facts that checks compare."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from fa_audit.core.randomness import generator
from fa_audit.core.vectors import cosine
from fa_audit.methods.method import Credits
from fa_audit.networks.network import Network
from fa_audit.networks.trace import reference
from fa_audit.testing.subject import SEED
from fa_audit.training.learner import Learner, learn


def credits_of(learner: Learner, x: Tensor, labels: Tensor) -> Credits:
    """Return the credits of a batch."""
    return learner.method.credits(learner.network, learner.trace(x), labels, learner.state)


def named_credits(learner: Learner, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the credits of a batch by name, bottom to top."""
    return credits_of(learner, x, labels).by_name()


def step(learner: Learner, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Accumulate the gradients of a batch, and return them by the names of their parameters."""
    learn(learner, x, labels, generator(SEED, "method"))
    return gradients_of(learner.parts)


def gradients_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the gradients that parameters have, by the parameters' names."""
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def gradients_by_part(network: Network) -> list[Tensor]:
    """Join each part's gradients (embedding, blocks, head) to one vector; missing ones are zero."""
    vectors = []
    for part in (network.embed, *network.blocks, network.head):
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in part.parameters()]
        vectors.append(parameters_to_vector(gradients))
    return vectors


def facts_of(module: nn.Module) -> dict[str, Any]:
    """Return facts about a module, by name; a comparison shows which of them a method changed."""
    facts: dict[str, Any] = {}
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        facts[name] = tensor.detach().clone()
        facts[f"the gradient of {name}"] = deepcopy(tensor.grad)
        facts[f"flags of {name}"] = tensor.requires_grad, bool(tensor._backward_hooks)
    for name, part in module.named_modules():
        for attribute, value in vars(part).items():
            # Compare numbers, texts and tensors by value, containers (hooks, parts) by size, other
            # objects only by type.
            fact = len(value) if isinstance(value, dict | list) else type(value)
            if isinstance(value, int | float | str):
                fact = value
            elif isinstance(value, Tensor):
                fact = value.detach().clone()
            facts[f"{name}.{attribute}"] = fact
    return facts


def saturate(learner: Learner, label: int) -> None:
    """Make the network certain of the class `label`, so that errors are exactly 0, 1 or -1."""
    bias = learner.network.head[-1].bias
    bias.data = 1000.0 * (torch.arange(len(bias)) == label)


def cosines(learner: Learner, x: Tensor, labels: Tensor) -> list[float]:
    """Call `_align`, and return each credit's mean cosine with the gradient, bottom to top.

    The cosine is NaN for a credit that is zero or has one direction for all samples.
    """
    _align(learner, x)
    gradients = reference(learner.network, x, labels).gradients
    found = []
    for a, g in zip(named_credits(learner, x, labels).values(), gradients, strict=True):
        value = cosine(a, g).value
        one_direction = torch.linalg.matrix_rank(a) < 2
        found.append(math.nan if value is None or one_direction else value)
    return found


def _align(learner: Learner, x: Tensor) -> None:
    """Replace every feedback matrix ``(d, C)`` or ``(C, d)`` by the head's weight.

    A matrix ``(inputs, C)``, whose product with the error is added to the input, becomes minus the
    mean gradients of the logits at the input, and keeps its norm.
    """
    network = learner.network
    jacobian = torch.autograd.functional.jacobian(lambda x: network(x).sum(0), x)
    slopes = jacobian.mean(1).flatten(1).T
    weight = network.head[-1].weight.detach()
    # state_dict has the tensors without their graphs, so that they can be changed in place.
    for tensor in learner.state.state_dict().values():
        for true in (weight, weight.T):
            if tensor.shape[-2:] == true.shape:
                # Feedback without negative entries holds magnitudes: use those of the weight.
                magnitudes = bool((tensor >= 0).all())
                tensor.copy_((true.abs() if magnitudes else true).expand_as(tensor))
        if tensor.shape == slopes.shape:
            tensor.copy_(-slopes * (tensor.norm() / slopes.norm()))
