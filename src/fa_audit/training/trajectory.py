"""The history of a training, a row per epoch and state: written, read, and compared with its run.
Imports no torch.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from fa_audit.core.errors import AuditError, listed
from fa_audit.experiments.paths import at_both_sides
from fa_audit.experiments.spec import RunSpec

TRAJECTORY_COLUMNS = (
    "epoch", "layer", "hidden_norm", "grad_norm", "growth", *at_both_sides("cosine"), "grad_norm_1024", "train_loss",
    "train_accuracy", "test_accuracy",
)  # fmt: skip
MAY_BE_ABSENT = ("growth", *at_both_sides("cosine"))
OF_TRAINING = ("train_loss", "train_accuracy")  # absent at epoch 0
Row = dict[str, float | int | None]


def trajectory_csv(history: list[Row]) -> str:
    """Write the history as CSV text; an empty field means that the quantity does not exist there."""
    text = io.StringIO()
    writer = csv.DictWriter(text, TRAJECTORY_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    return text.getvalue()


def read_trajectory(path: str | Path) -> list[Row]:
    """Read the history that `trajectory_csv` wrote.

    Raises:
        AuditError: a column is missing, a value is not a number, or rows are missing.
    """
    cause: Exception | None = None
    try:
        with open(path, encoding="utf-8", newline="") as stream:
            rows = [
                {name: _value(name, row) for name in TRAJECTORY_COLUMNS}
                for row in csv.DictReader(stream)
            ]
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        rows, cause = [], error
    if not rows:
        columns = ", ".join(TRAJECTORY_COLUMNS)
        raise AuditError(
            f"{path}: expected a trajectory with the columns {columns}, and rows."
        ) from cause
    return rows


def _value(name: str, row: Mapping[str, str]) -> int | float | None:
    """Return the number in a field; None where the field may be empty and is."""
    text = row[name]
    if text == "" and (name in MAY_BE_ABSENT or (name in OF_TRAINING and row["epoch"] == "0")):
        return None
    return int(text) if name in ("epoch", "layer") else float(text)


def check_history(
    history: Sequence[Mapping[str, float | int | None]],
    spec: RunSpec,
    accuracy: float | None = None,
    stopped_after: int | None = None,
    where: str = "trajectory",
) -> None:
    """Check that a history has every epoch and state of its run, and ends with the accuracy that is
    reported.

    Epochs count from 1, and an untrained network's history is epoch 0.

    Args:
        accuracy: on the test set after the last epoch; None if it is not known.
        stopped_after: the epoch after which the monitor ended the training; without a monitor it is
            the last one.
        where: the file, for the error.

    Raises:
        AuditError: rows are missing or repeated, so that no flag can be called the first, or the
            accuracy differs.
    """
    found = [(row["epoch"], row["layer"]) for row in history]
    depth = 0 if spec.shallow else dict(spec.architecture_options).get("depth")
    states = range((max((layer for _, layer in found), default=0) if depth is None else depth) + 1)
    early = (
        max((epoch for epoch, _ in found), default=0) if spec.monitor and accuracy is None else None
    )
    last_epoch = stopped_after or early or spec.last_epoch
    expected = [
        (epoch, layer) for epoch in range(min(1, last_epoch), last_epoch + 1) for layer in states
    ]
    if found != expected:
        missing = [
            f"epoch {epoch} state {layer}"
            for epoch, layer in expected
            if (epoch, layer) not in set(found)
        ]
        problem = (
            f"no rows of {listed(missing, 3)}"
            if missing
            else "rows repeated, out of order or of another run"
        )
        raise AuditError(
            f"{where}: found {problem}; expected {len(states)} states for each of {len(expected) // len(states)}"
            " epochs. Delete it and run the training again."
        )
    last = history[-1]["test_accuracy"]
    if accuracy is not None and accuracy != last:
        raise AuditError(
            f"{where}: its last row has the test accuracy {last}, but {accuracy} is given for the same network: one of"
            " them was altered. Delete both and run the training again."
        )
