"""Measure how the reference gradient and D2 depend on the number of evaluation samples.

python tools/samples.py CHECKPOINT... --data FILE --output reference/measured/samples.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.audit.diagnose import diagnose
from fa_audit.core.files import write_text
from fa_audit.core.numerics import set_numerics
from fa_audit.data.dataset import Dataset, evaluation_batches, load_dataset
from fa_audit.experiments.paths import RunKey
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.training.checkpoint import load_checkpoint

COUNTS = (16, 32, 64, 128, 256, 512, 1024, 2048)
FLOOR = DiagnosticThresholds().g_norm_floor  # the published one, for 128 samples


def rows(checkpoint: Path, dataset: Dataset) -> Iterator[dict[str, Any]]:
    """Audit one trained network on each number of samples in `COUNTS`; yield a row for each."""
    learner = load_checkpoint(checkpoint)
    for count in COUNTS:
        report = diagnose(learner.network, evaluation_batches(dataset, count, limit=1), None)
        check = report.checks.reference
        yield RunKey.of(checkpoint)._asdict() | {
            "samples": count,
            "grad_norm_last": check.value,
            "floor": check.threshold,
            "fires": check.fires,
            "fires_at_published_floor": check.value < FLOOR,
        }


def measure(
    description: str | None,
    rows: Callable[[Path, Dataset], Iterable[dict[str, Any]]],
    output: str,
) -> None:
    """Measure every checkpoint that the command line names, and write one table.

    Args:
        description: the text of ``--help``.
        rows: returns a checkpoint's rows.
        output: the default path of the table.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, nargs="+", metavar="CHECKPOINT")
    parser.add_argument(
        "--data", type=Path, default=Path("results/data/cifar10.safetensors"), metavar="FILE"
    )
    parser.add_argument("--output", type=Path, default=Path(output), metavar="CSV")
    options = parser.parse_args()
    set_numerics(threads=1)
    dataset = load_dataset(options.data)
    table = pd.DataFrame([row for path in options.checkpoints for row in rows(path, dataset)])
    write_text(options.output, table.to_csv(index=False))


if __name__ == "__main__":
    measure(__doc__, rows, "reference/measured/samples.csv")
