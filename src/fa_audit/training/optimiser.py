"""Optimisers that call torch's functional forms.

Creating an optimiser of torch.optim imports the compiler, which would take 1.1 s in every job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

MOMENTUM = 0.9
# The moments: the tensors that each rule keeps for a parameter.
_REMEMBERED = {"adamw": ("step", "exp_avg", "exp_avg_sq"), "sgd": ("momentum",)}
_Moments = dict[str, Tensor]


class Optimiser:
    """Update all parameters by one rule, AdamW or gradient descent with momentum.

    Attributes:
        lr: learning rate of the next step, which a schedule fills in; a scalar on the parameters'
            device, so that no step copies a number to the device.
        groups: parameters, their weight decay, and their learning rate as a multiple of `lr`.
        clips: groups of parameters, each with the norm to which its gradients are clipped together.
        moments: the rule's tensors for every parameter with a gradient so far, by its position.
    """

    def __init__(
        self,
        groups: Iterable[tuple[Iterable[Tensor], float, float]],
        lr: float,
        rule: str,
        clips: Sequence[tuple[Sequence[Tensor], float]],
    ) -> None:
        self.groups = [(list(parameters), decay, rate) for parameters, decay, rate in groups]
        device = self.parameters[0].device
        # The type that torch's fused kernels read: a double on a CPU, float32 elsewhere.
        kind = torch.float64 if device.type == "cpu" else torch.float32
        self.lr = torch.tensor(lr, dtype=kind, device=device)
        self.clips = clips
        self.moments: dict[int, _Moments] = {}
        self.rule = rule

    @property
    def parameters(self) -> list[Tensor]:
        """Return every parameter, in the order of the groups."""
        return [parameter for parameters, *_ in self.groups for parameter in parameters]

    def zero_grad(self) -> None:
        """Drop every gradient."""
        # None, not zeros: AdamW decays and moves any parameter with a gradient, even one of zeros.
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        self._clip()
        # Moments are kept by the parameter's position, which is the same in a resumed training.
        first = 0
        for parameters, decay, rate in self.groups:
            learning, moments = [], []
            for index, parameter in enumerate(parameters, first):
                if parameter.grad is not None:
                    learning.append(parameter)
                    moments.append(self._moments_of(index, parameter))
            first += len(parameters)
            if learning:
                # Even multiplying by 1 would make a new tensor on the device in every step.
                lr = self.lr if rate == 1 else self.lr * rate
                self._move(learning, moments, lr, decay)

    def _move(
        self, parameters: list[Tensor], moments: list[_Moments], lr: Tensor, decay: float
    ) -> None:
        """Take one step of the rule, bit for bit as torch's fused optimisers do.

        AdamW (Loshchilov and Hutter 2019) has decoupled decay; gradient descent has momentum 0.9
        and decay in the gradient.
        """
        gradients = [parameter.grad for parameter in parameters]
        names = _REMEMBERED[self.rule]
        columns = [[entry[name] for entry in moments] for name in names]
        common: dict[str, Any] = {"lr": lr, "weight_decay": decay, "maximize": False, "fused": True}
        if self.rule == "sgd":
            # As in torch.optim.SGD, the momentum after one step is the first gradient: the momentum
            # starts at zero, and there is no dampening.
            common |= {"momentum": MOMENTUM, "dampening": 0.0, "nesterov": False}
            sgd(parameters, gradients, *columns, **common)
            return
        steps, averages, squares = columns
        common |= {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": False}  # torch's defaults
        adamw(parameters, gradients, averages, squares, [], steps, **common)

    def _clip(self) -> None:
        # Gradients that two parameters share are scaled once.
        clipped: set[int] = set()
        for parameters, norm in self.clips:
            gradients = {id(p.grad): p for p in parameters if p.grad is not None}
            own = {key: p for key, p in gradients.items() if key not in clipped}
            # Torch divides by the norm plus 1e-6: clipped gradients end just below `norm`.
            nn.utils.clip_grad_norm_(own.values(), norm)
            clipped |= own.keys()

    def _moments_of(self, index: int, parameter: Tensor) -> _Moments:
        """Return the moments of a parameter; all zero before its first step."""
        if index not in self.moments:
            names = _REMEMBERED[self.rule]
            self.moments[index] = {name: torch.zeros_like(parameter) for name in names}
            if "step" in names:
                # Torch's fused kernel counts steps in a float32 scalar on the same device.
                self.moments[index]["step"] = torch.zeros((), device=parameter.device)
        return self.moments[index]
