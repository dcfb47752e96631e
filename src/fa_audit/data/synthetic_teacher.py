"""Gaussian inputs labelled by a fixed random network: the negative control.

    x ~ N(0, I), 16 entries, as images of 1 x 4 x 4;    label = argmax of standardised W2 |W1 x|,
    16 hidden units W1 ~ N(0, 1 / 16),    W2 ~ N(0, 1 / 16),    ten classes; each output has mean 0
    and deviation 1 over all inputs

The teacher is an even function, so that no linear function of x predicts its labels. Networks with
frozen blocks stay near chance; trained blocks help. Standardised outputs make the classes about
equally frequent.

Source: Hao, Wan, Zhai 2026 (arXiv 2606.21126) train a student MLP on a synthetic teacher. They do
not say how it is made; this teacher is our own. In the paper neither D1 nor D2 fires. With our
teacher no check fires after 20 epochs. After the paper's 80 epochs D1 fires for FA and DFA, since
their states grow with every training step (docs/methods.md). The split is fixed, so a run's seed
changes the student only.
"""

from __future__ import annotations

from pathlib import Path

import torch

from fa_audit.core.randomness import generator
from fa_audit.data.dataset import Dataset

SHAPE, HIDDEN, CLASSES = (1, 4, 4), 16, 10
TRAIN, TEST = 2000, 2000
SEED = 0


def synthetic_teacher(data_root: Path) -> Dataset:
    """Draw 2,000 training and 2,000 test inputs, 1 x 4 x 4, ten classes; `data_root` is unused."""
    randomness = generator(SEED, "synthetic teacher")
    images = torch.randn(TRAIN + TEST, *SHAPE, generator=randomness)
    # Computed in float64, so that rounding decides no label.
    x = images.flatten(1).double()
    outputs = (x @ _weights(x.shape[1], HIDDEN, randomness)).abs() @ _weights(
        HIDDEN, CLASSES, randomness
    )
    labels = ((outputs - outputs.mean(dim=0)) / outputs.std(dim=0)).argmax(dim=1)
    return Dataset(
        name="synthetic_teacher",
        train_images=images[:TRAIN],
        train_labels=labels[:TRAIN],
        test_images=images[TRAIN:],
        test_labels=labels[TRAIN:],
        classes=CLASSES,
        scale=1,
        mean=(0.0,),
        std=(1.0,),
        padding=0,
        flip=False,
    )


def _weights(inputs: int, outputs: int, randomness: torch.Generator) -> torch.Tensor:
    return torch.randn(inputs, outputs, generator=randomness, dtype=torch.float64) * inputs**-0.5
