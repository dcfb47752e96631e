"""Measure how often forward-forward's own two ways to classify are right on the test set.

python tools/goodness.py CHECKPOINT... --data FILE --output reference/field/goodness.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from fa_audit.core.files import write_text
from fa_audit.core.numerics import set_numerics
from fa_audit.data.dataset import Dataset, evaluation_batches, load_dataset
from fa_audit.experiments.paths import RunKey
from fa_audit.methods.forward_forward import classify, classify_neutral
from fa_audit.training.checkpoint import load_checkpoint


def row(checkpoint: Path, dataset: Dataset) -> dict[str, Any]:
    """Return a trained network's accuracies by goodness and by the softmax layer."""
    learner = load_checkpoint(checkpoint)
    network, right = learner.network, {"goodness": 0, "neutral_label": 0}
    for x, labels in evaluation_batches(dataset):
        right["goodness"] += number_right(classify(network, x, dataset.classes), labels)
        right["neutral_label"] += number_right(classify_neutral(network, x, learner.state), labels)
    accuracies = {way: count / len(dataset.test_labels) for way, count in right.items()}
    return RunKey.of(checkpoint)._asdict() | accuracies


def number_right(found: Tensor, labels: Tensor) -> int:
    return int((found == labels).sum())


def main() -> None:
    """Measure every checkpoint that the command line names, and write one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, nargs="+", metavar="CHECKPOINT")
    parser.add_argument(
        "--data", type=Path, default=Path("results/data/cifar10.safetensors"), metavar="FILE"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("reference/field/goodness.csv"), metavar="CSV"
    )
    options = parser.parse_args()
    set_numerics(threads=1)
    dataset = load_dataset(options.data)
    table = pd.DataFrame([row(path, dataset) for path in options.checkpoints])
    write_text(options.output, table.to_csv(index=False))


if __name__ == "__main__":
    main()
