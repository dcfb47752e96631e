"""Optimisers through torch's functional forms, which do not import its compiler: 1.1 s less for
every training job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

BETAS, EPS = (0.9, 0.999), 1e-8  # torch.optim.AdamW's defaults
MOMENTUM = 0.9


class Rule(Protocol):
    """How one group of parameters moves."""

    def start(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return the moments of a parameter before its first step."""

    def move(
        self, parameters: list[Tensor], moments: list[dict[str, Tensor]], lr: Tensor, decay: float
    ) -> None:
        """Move parameters along their gradients, in place, with their moments."""


class AdamW:
    """AdamW (Loshchilov and Hutter 2019) with decoupled decay; the same bits as
    ``torch.optim.AdamW(fused=True)``.
    """

    def start(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return the number of steps and both running means of the gradient, all zero."""
        step = torch.zeros((), dtype=torch.float32, device=parameter.device)
        return {
            "step": step,
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }

    def move(
        self, parameters: list[Tensor], moments: list[dict[str, Tensor]], lr: Tensor, decay: float
    ) -> None:
        """Move parameters by AdamW's fused kernel."""
        gradients = [parameter.grad for parameter in parameters]
        means, squares, steps = (
            [entry[name] for entry in moments] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        constants = {
            "beta1": BETAS[0],
            "beta2": BETAS[1],
            "eps": EPS,
            "amsgrad": False,
            "maximize": False,
        }
        adamw(
            parameters,
            gradients,
            means,
            squares,
            [],
            steps,
            fused=True,
            lr=lr,
            weight_decay=decay,
            **constants,
        )


class SGD:
    """Gradient descent with momentum 0.9 and decay in the gradient, as
    ``torch.optim.SGD(momentum=0.9, fused=True)``.

    A momentum that starts at zero, without dampening, is the first gradient after the first step,
    as there.
    """

    def start(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return the momentum, zero."""
        return {"momentum": torch.zeros_like(parameter)}

    def move(
        self, parameters: list[Tensor], moments: list[dict[str, Tensor]], lr: Tensor, decay: float
    ) -> None:
        """Move parameters by SGD's fused kernel."""
        gradients = [parameter.grad for parameter in parameters]
        momenta = [entry["momentum"] for entry in moments]
        constants = {"momentum": MOMENTUM, "dampening": 0.0, "nesterov": False, "maximize": False}
        sgd(parameters, gradients, momenta, fused=True, lr=lr, weight_decay=decay, **constants)


RULES: dict[str, type[Rule]] = {"adamw": AdamW, "sgd": SGD}


class Optimiser:
    """Minimise by one rule for all parameters.

    Attributes:
        lr: learning rate of the next step: a scalar on the parameters' device, so that no step
            copies a number to it.
        groups: parameters, their weight decay, and their learning rate as a multiple of `lr`.
        clips: parameters whose gradients are scaled down together where they are longer than the
            norm beside them.
        moments: what the rule remembers of every parameter that has had a gradient, by its
            position.
    """

    def __init__(
        self,
        groups: Iterable[tuple[Iterable[Tensor], float, float]],
        lr: float,
        rule: str = "adamw",
        clips: Sequence[tuple[Sequence[Tensor], float]] = (),
    ) -> None:
        self.groups = [(list(parameters), decay, rate) for parameters, decay, rate in groups]
        device = self.parameters[0].device
        # As torch's fused kernels read it: a double on a CPU, float32 elsewhere.
        self.lr = torch.tensor(
            lr, dtype=torch.float64 if device.type == "cpu" else torch.float32, device=device
        )
        self.rule, self.clips = RULES[rule](), clips
        self.moments: dict[int, dict[str, Tensor]] = {}

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        self.lr.fill_(lr)

    @property
    def parameters(self) -> list[Tensor]:
        """Return every parameter, in the order of the groups."""
        return [parameter for parameters, *_ in self.groups for parameter in parameters]

    def restore(self, moments: dict[int, dict[str, Tensor]]) -> None:
        """Continue from the moments of an interrupted training, on any device."""
        own = self.parameters
        self.moments = {
            i: {name: t.to(own[i].device) for name, t in entry.items()}
            for i, entry in moments.items()
        }

    def zero_grad(self) -> None:
        """Drop every gradient."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        clipped: set[int] = (
            set()
        )  # gradients that two parameters share, as in Kolen-Pollack, are scaled once
        for parameters, norm in self.clips:
            own = {
                id(p.grad): p
                for p in parameters
                if p.grad is not None and id(p.grad) not in clipped
            }
            nn.utils.clip_grad_norm_(own.values(), norm)
            clipped |= own.keys()
        first = 0
        for parameters, decay, rate in self.groups:
            learning = [(first + i, p) for i, p in enumerate(parameters) if p.grad is not None]
            first += len(parameters)
            for index, parameter in learning:
                if index not in self.moments:
                    self.moments[index] = self.rule.start(parameter)
            if learning:
                moments = [self.moments[index] for index, _ in learning]
                lr = self.lr if rate == 1 else self.lr * rate
                self.rule.move([parameter for _, parameter in learning], moments, lr, decay)
