"""Read tidy tables that others may have sent, such as ``reference/measured``: damage and mixing-up are one error.

A folder holds ``SETTING/{runs,layers,trajectories,work}.csv``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.core.checks import CHECKS
from fa_audit.core.errors import AuditError, first_line, listed, shortened
from fa_audit.core.files import FOREIGN
from fa_audit.experiments.paths import MEASURED, TIDY
from fa_audit.results.tidy import KEY, Tidy, read_table, read_tidy

FOLDER = "reference/measured"
NEEDED = (*KEY, "accuracy", "own_frozen_acc", "bp_frozen_acc", "shallow_acc", "max_growth", "hidden_norm_last",
          "grad_norm_last", "stability", "three_check", "four_check", "finite", "stopped_after",
          *(f"{check}_{part}" for check in CHECKS for part in ("fires", "distance", "borderline")))  # fmt: skip


def measured_folder(folder: str | Path | None) -> Path:
    """Return the folder to read: the one given, or the one that comes with the repository.

    Raises:
        AuditError: there is none, or it holds no tables.
    """
    checkout = Path(__file__).resolve().parents[3] / FOLDER
    found = Path(folder) if folder else next((path for path in (Path(FOLDER), checkout) if path.is_dir()), Path(FOLDER))
    if not settings_in(found):
        raise AuditError(
            f"--from: found no tables SETTING/runs.csv in '{found}'; expected a folder such as {FOLDER} of the project,"
            " or results/tidy of your own: name it with --from."
        )
    return found


def settings_in(folder: Path) -> list[str]:
    """Return the settings that have a table of runs, sorted."""
    return sorted(path.parent.name for path in folder.glob("*/runs.csv"))


def tables_of(folder: Path, settings: Iterable[str], names: Sequence[str] = MEASURED) -> list[Path]:
    """Return the paths of tables of settings, each of which has been verified.

    Raises:
        AuditError: one is missing, damaged or of something else.
    """
    paths = []
    for setting in settings:
        for path in (folder / setting / f"{name}.csv" for name in ("runs", *names)):
            if not path.is_file():
                known = listed(settings_in(folder)) or "none"
                raise AuditError(f"setting '{setting}': no file '{path}'; '{folder}' has the settings {known}.")
        verify(folder / setting)
        paths += [folder / setting / f"{name}.csv" for name in names]
    return paths


def read_measured(folder: Path) -> Tidy:
    """Read every table of every setting, verified.

    Raises:
        AuditError: a table is missing, damaged or of something else.
    """
    return read_tidy(tables_of(folder, settings_in(folder), TIDY))


def verify(folder: Path) -> None:
    """Check that the tables of a setting belong together: the accuracy and norms of a run are in others, too.

    Raises:
        AuditError: the first entry that differs: its file, row, column, what was found and what was expected.
    """
    path = folder / "runs.csv"
    runs = read_table(path)
    if missing := [name for name in NEEDED if name not in runs]:
        raise AuditError(f"{path}: missing the columns {listed(missing)}; expected a table that the workflow wrote.")
    parts = {name: folder / f"{name}.csv" for name in ("layers", "trajectories")}
    others = {
        name: dict(list(read_table(part).groupby(["run", "seed"]))) for name, part in parts.items() if part.is_file()
    }
    for number, row in enumerate(runs.to_dict("records"), 2):
        where = f"{path}: line {number} ({row['run']}, seed {row['seed']})"
        try:
            expected = _in_others(**{name: groups[row["run"], row["seed"]] for name, groups in others.items()})
        except FOREIGN as error:
            raise AuditError(f"{where}: {first_line(error)}; expected a row that the workflow wrote.") from error
        for column, value in expected.items():
            if not _same(row[column], value):
                raise AuditError(
                    f"{where}: {column}: found {shortened(row[column])}, expected {shortened(value)}, as in the other"
                    " tables: altered after it was written, or of another run. Take the original."
                )
    if runs.empty or runs.duplicated(["run", "seed"]).any():
        raise AuditError(f"{path}: expected one row for each run and seed. Take the original.")


def _in_others(layers: pd.DataFrame | None = None, trajectories: pd.DataFrame | None = None) -> dict[str, float]:
    """Return the columns of a run that its layers and its trajectory have, too."""
    found = {}
    if layers is not None:
        last = layers.sort_values("layer").iloc[-1]
        found = {f"{name}_last": float(last[name]) for name in ("hidden_norm", "grad_norm")}
    if trajectories is not None:
        found["accuracy"] = float(trajectories.sort_values("epoch")["test_accuracy"].iloc[-1])
    return found


def _same(found: Any, expected: float) -> bool:
    """Compare a cell with what it should be, but for what platforms round differently."""
    if pd.isna(found) or pd.isna(expected):
        return pd.isna(found) and pd.isna(expected)
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12)
