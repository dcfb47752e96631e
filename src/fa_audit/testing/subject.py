"""The method under test, with small networks, data and trainings that several checks share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.core.randomness import generator
from fa_audit.data.dataset import Dataset, evaluation_batches
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods.method import Credits, Method
from fa_audit.networks import architecture_options
from fa_audit.training.checkpoint import learner_tensors, load_learner_tensors
from fa_audit.training.learner import Learner, build
from fa_audit.training.loop import Trained, train
from fa_audit.training.resume import Resume

SEED = 0  # of data, networks and trainings
# No two sizes alike, nor like a bridge's hidden layers: feedback is found by its shape.
WIDTH, DEPTH, CLASSES = 21, 3, 6
OPTIONS = {"depth": DEPTH, "residual": True, "terminal_norm": True, "width": WIDTH}
# The last minibatch of 16 holds a single sample.
SAMPLES, HELD_OUT = 97, 60
# Weight decay would move what no gradient reaches.
COMMON: dict[str, Any] = {"epochs": 2, "batch_size": 16, "lr": 2e-2, "weight_decay": 0.0}
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Subject:
    """A method under test and the trainings of it that several checks look at.

    Attributes:
        method: its constants; every learner gets an instance of its own.
        name: its registered name, or ``package.module:ClassName``.
        architecture: the network's.
        runs: the trainings so far.
    """

    method: Method
    name: str
    architecture: str = "resmlp"
    runs: dict[Any, Trained] = field(default_factory=dict)

    def fresh(self) -> Method:
        """Return a new instance with the same constants and nothing else."""
        return replace(self.method)

    def generator(self) -> torch.Generator:
        """Return the generator of a step's noise."""
        return generator(SEED, "method")

    def spec(self, **changes: Any) -> RunSpec:
        """Return a small specification; `changes` are its fields, and options for networks that
        have them.
        """
        options = {name: changes.pop(name, value) for name, value in OPTIONS.items()}
        known = architecture_options(self.architecture).keys() & options
        return RunSpec(
            dataset="clouds",
            architecture=self.architecture,
            architecture_options=tuple((name, options[name]) for name in sorted(known)),
            method=self.name,
            **{"seed": SEED} | COMMON | changes,
        )

    def build(self, classes: int = CLASSES, **changes: Any) -> Learner:
        """Build an untrained learner, at the beginning of an epoch, in evaluation mode."""
        learner = build(self.spec(**changes), clouds().image_shape, classes, self.fresh())
        learner.network.eval()
        learner.method.begin_epoch(learner.state, 0.0)
        return learner

    def trained(self, **changes: Any) -> Trained:
        """Train once per specification; the result is shared between checks, so do not change it."""
        key = tuple(sorted(changes.items()))
        if key not in self.runs:
            self.runs[key] = train(self.spec(**changes), clouds(), method=self.fresh())
        return self.runs[key]

    def tensors(self, **changes: Any) -> dict[str, Tensor]:
        """Return every tensor of a trained learner."""
        return learner_tensors(self.trained(**changes).learner)

    def retrained(
        self, data: Dataset | None = None, resume: Resume | None = None
    ) -> dict[str, Tensor]:
        """Train again, and return every tensor."""
        again = train(self.spec(), data or clouds(), resume=resume, method=self.fresh())
        return learner_tensors(again.learner)

    def copy(self, **changes: Any) -> Learner:
        """Return a copy of a trained learner that may be changed."""
        learner = self.build(**changes)
        load_learner_tensors(learner, self.tensors(**changes))
        return learner

    def batch(self, count: int) -> Batch:
        """Return the first `count` test images, normalised, and their labels."""
        x, labels = evaluation_batches(clouds())[0]
        return x[:count], labels[:count]


@cache
def clouds() -> Dataset:
    """Draw one Gaussian cloud per class, linearly separable, as uint8 images ``(1, 8, 8)``."""
    randomness, shape = generator(SEED, "clouds"), (1, 8, 8)
    labels = torch.arange(SAMPLES + HELD_OUT) % CLASSES
    centres = 128 + 40 * torch.randn(CLASSES, *shape, generator=randomness)
    images = centres[labels] + 20 * torch.randn(len(labels), *shape, generator=randomness)
    images = images.round().clamp(0, 255).to(torch.uint8)
    return Dataset(
        name="clouds",
        train_images=images[:SAMPLES],
        train_labels=labels[:SAMPLES],
        test_images=images[SAMPLES:],
        test_labels=labels[SAMPLES:],
        classes=CLASSES,
        scale=255,
        mean=(0.5,),
        std=(0.25,),
        padding=0,
        flip=False,
    )


def credits_of(learner: Learner, x: Tensor, labels: Tensor) -> Credits:
    """Return the credits of a batch, without changing the process's settings."""
    run = learner.trace(x)
    with kept_settings():
        return learner.method.credits(learner.network, run, labels, learner.state)


def named_credits(learner: Learner, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the credits of a batch by name, bottom to top."""
    return credits_of(learner, x, labels).by_name()


def gradients_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the gradients that parameters have, by the parameters' names."""
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def facts_of(module: nn.Module) -> dict[str, Any]:
    """Copy everything of a module that others could change, by name, in a form that compares."""
    facts: dict[str, Any] = {}
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        facts[name] = tensor.detach().clone()
        facts[f"requires_grad of {name}"] = tensor.requires_grad
        facts[f"a hook on {name}"] = bool(tensor._backward_hooks)
    for name, gradient in gradients_of(module).items():
        facts[f"the gradient of {name}"] = gradient.clone()
    for name, part in module.named_modules():
        for attribute, value in vars(part).items():
            # Of containers, as hooks and parts are, the size; of other objects only the type.
            fact = len(value) if isinstance(value, dict | list) else type(value)
            if isinstance(value, bool | int | float | str):
                fact = value
            elif isinstance(value, Tensor):
                fact = value.detach().clone()
            facts[f"{name}.{attribute}"] = fact
    return facts


@contextmanager
def kept_settings() -> Iterator[None]:
    """Restore torch's threads, default type and gradient mode, and Python's random state."""
    drawn, threads = random.getstate(), torch.get_num_threads()
    default, gradients = torch.get_default_dtype(), torch.is_grad_enabled()
    try:
        yield
    finally:
        random.setstate(drawn)
        torch.set_num_threads(threads)
        torch.set_default_dtype(default)
        torch.set_grad_enabled(gradients)
