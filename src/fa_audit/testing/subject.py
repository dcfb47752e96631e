"""The method under test, with small networks, data and trainings that several checks share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fa_audit.core.randomness import generator
from fa_audit.data.dataset import Dataset, evaluation_batches
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods.method import Method
from fa_audit.networks import architecture_options
from fa_audit.training.checkpoint import learner_tensors, load_learner_tensors
from fa_audit.training.learner import Learner, build
from fa_audit.training.loop import train
from fa_audit.training.resume import Resume

SEED = 0  # seed of data, networks and trainings
# All sizes differ, also from those of the state bridge: checks find feedback by its shape.
WIDTH, DEPTH, CLASSES = 21, 3, 6
OPTIONS = {"depth": DEPTH, "residual": True, "terminal_norm": True, "width": WIDTH}
# With minibatches of 16, the last one holds a single sample.
SAMPLES, HELD_OUT = 97, 60
# Weight decay would move even parameters whose gradient is zero.
COMMON = {"seed": SEED, "epochs": 2, "batch_size": 16, "lr": 2e-2, "weight_decay": 0.0}
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Subject:
    """A method under test, and its trainings, which several checks share.

    Attributes:
        method: an instance; every learner gets a copy.
        name: its registered name, or ``package.module:ClassName``.
        architecture: name of the network's architecture.
        runs: the trainings so far.
    """

    method: Method
    name: str
    architecture: str = "resmlp"
    runs: dict[RunSpec, Learner] = field(default_factory=dict)

    def spec(self, **changes: Any) -> RunSpec:
        """Return the specification of a small run.

        Args:
            changes: fields of the specification, and entries of `OPTIONS`; architectures without
                such an option ignore it.
        """
        values: dict[str, Any] = OPTIONS | COMMON | changes
        options = {name: values.pop(name) for name in OPTIONS}
        known = architecture_options(self.architecture)
        return RunSpec(
            dataset="clouds",
            architecture=self.architecture,
            architecture_options=tuple(pair for pair in options.items() if pair[0] in known),
            method=self.name,
            **values,
        )

    def build(self, classes: int = CLASSES, **changes: Any) -> Learner:
        """Build an untrained learner at the beginning of its first epoch, in evaluation mode."""
        learner = build(self.spec(**changes), clouds().image_shape, classes, replace(self.method))
        learner.network.eval()
        learner.method.begin_epoch(learner.state, 0.0)
        return learner

    def trained(self, **changes: Any) -> Learner:
        """Return a trained learner, which all checks share: to change it, take a `copy`."""
        spec = self.spec(**changes)
        if spec not in self.runs:
            self.runs[spec] = self.retrained(**changes)
        return self.runs[spec]

    def retrained(
        self, data: Dataset | None = None, resume: Resume | None = None, **changes: Any
    ) -> Learner:
        """Train a new learner, even if this specification was trained before."""
        spec = self.spec(**changes)
        return train(spec, data or clouds(), resume=resume, method=replace(self.method)).learner

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor, by name, of the learner trained with the default options."""
        return learner_tensors(self.trained())

    def copy(self, **changes: Any) -> Learner:
        """Return a copy of the learner from `trained`, which the caller may modify."""
        learner = self.build(**changes)
        load_learner_tensors(learner, learner_tensors(self.trained(**changes)))
        return learner

    def batch(self, count: int) -> Batch:
        """Return the first `count` test images, normalised, and their labels."""
        return evaluation_batches(clouds(), count, limit=1)[0]


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
