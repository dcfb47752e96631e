"""Write, read and check the history of a training, a row per epoch and state. Imports no torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from fa_audit.core.errors import AuditError, listed
from fa_audit.core.measured import at_both_sides
from fa_audit.experiments.spec import RunSpec

TRAJECTORY_COLUMNS = (
    "epoch", "layer", "hidden_norm", "grad_norm", "growth", *at_both_sides("cosine"), "grad_norm_1024", "train_loss",
    "train_accuracy", "test_accuracy",
)  # fmt: skip
_MAY_BE_ABSENT = ("growth", *at_both_sides("cosine"))
# These columns are empty at epoch 0.
_OF_TRAINING = ("train_loss", "train_accuracy")
HINT = "Delete it and run the training again."
Row = dict[str, float | int | None]


def trajectory_csv(history: list[Row]) -> str:
    """Return the history as CSV text; a quantity that does not exist has an empty field."""
    text = io.StringIO()
    # By default csv ends lines with \r\n.
    writer = csv.DictWriter(text, TRAJECTORY_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    return text.getvalue()


def read_trajectory(path: str | Path) -> list[Row]:
    """Read the history that `trajectory_csv` wrote.

    Raises:
        AuditError: a column is missing, a value is not a number, or there are no rows.
    """
    rows, cause = [], None
    try:
        with open(path, encoding="utf-8", newline="") as stream:
            for fields in csv.DictReader(stream):
                rows.append({name: _value(name, fields) for name in TRAJECTORY_COLUMNS})
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        rows, cause = [], error
    if not rows:
        columns = ", ".join(TRAJECTORY_COLUMNS)
        expected = f"expected a trajectory with the columns {columns} and at least one row"
        raise AuditError(f"{path}: {expected}.") from cause
    return rows


def _value(name: str, fields: Mapping[str, str]) -> int | float | None:
    """Return the number in a field, or None for an empty field that is allowed to be empty."""
    text = fields[name]
    untrained = name in _OF_TRAINING and fields["epoch"] == "0"
    if text == "" and (untrained or name in _MAY_BE_ABSENT):
        return None
    return int(text) if name in ("epoch", "layer") else float(text)


def check_history(
    history: Sequence[Mapping[str, float | int | None]],
    spec: RunSpec,
    accuracy: float | None,
    stopped_after: int | None,
    where: str,
) -> None:
    """Check that a history has every epoch and state of its run, and ends with the reported
    accuracy.

    Epochs count from 1; an untrained network has epoch 0.

    Args:
        accuracy: test accuracy after the last epoch; None if unknown.
        stopped_after: the epoch after which the monitor ended the training, or None.
        where: the file's name in errors.

    Raises:
        AuditError: rows are missing or repeated, or the accuracy differs.
    """
    found = [(row["epoch"], row["layer"]) for row in history]
    depth = 0 if spec.shallow else dict(spec.architecture_options).get("depth")
    if depth is None:
        depth = max((layer for _, layer in found), default=0)
    last_epoch = stopped_after or spec.last_epoch
    # A monitor may have ended the training early, after an epoch that is not known here.
    if spec.monitor and accuracy is None and not stopped_after:
        last_epoch = max((epoch for epoch, _ in found), default=0) or spec.last_epoch
    epochs, states = range(min(1, last_epoch), last_epoch + 1), range(depth + 1)
    expected = [(epoch, state) for epoch in epochs for state in states]
    if found != expected:
        missing = [f"epoch {e} state {s}" for e, s in expected if (e, s) not in found]
        problem = "rows repeated, out of order or of another run"
        if missing:
            problem = f"no rows of {listed(missing, 3)}"
        size = f"{len(states)} states for each of {len(epochs)} epochs"
        raise AuditError(f"{where}: found {problem}; expected {size}. {HINT}")
    last = history[-1]["test_accuracy"]
    if accuracy is not None and accuracy != last:
        raise AuditError(
            f"{where}: its last row has the test accuracy {last}, but the run's result file has"
            f" {accuracy}, so one of the two files was altered. Delete both files and run the"
            " training again."
        )
