"""Measure how often forward-forward's own two ways to classify are right on the test set.

python tools/goodness.py CHECKPOINT... --data FILE --output reference/field/goodness.csv
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from samples import measure
from torch import Tensor

from fa_audit.data.dataset import Dataset, evaluation_batches
from fa_audit.experiments.paths import RunKey
from fa_audit.methods.forward_forward import classify, classify_neutral
from fa_audit.training.checkpoint import load_checkpoint


def rows(checkpoint: Path, dataset: Dataset) -> Iterator[dict[str, Any]]:
    """Yield one row: a trained network's accuracies by goodness and by the softmax layer."""
    learner = load_checkpoint(checkpoint)
    network, right = learner.network, {"goodness": 0, "neutral_label": 0}
    for x, labels in evaluation_batches(dataset):
        right["goodness"] += number_right(classify(network, x), labels)
        right["neutral_label"] += number_right(classify_neutral(network, x, learner.state), labels)
    accuracies = {way: count / len(dataset.test_labels) for way, count in right.items()}
    yield RunKey.of(checkpoint)._asdict() | accuracies


def number_right(found: Tensor, labels: Tensor) -> int:
    return int((found == labels).sum())


if __name__ == "__main__":
    measure(__doc__, rows, "reference/field/goodness.csv")
