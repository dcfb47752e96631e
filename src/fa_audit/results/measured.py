"""Read the tidy tables of a folder such as ``reference/measured``.

The folder has ``SETTING/{runs,layers,trajectories,work}.csv``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fa_audit.core.errors import AuditError, listed
from fa_audit.core.provided import provided
from fa_audit.experiments.paths import MEASURED
from fa_audit.protocol.checks import CHECKS
from fa_audit.results.tidy import KEY, Tidy, read_table, read_tidy

FOLDER = "reference/measured"
NEEDED = (*KEY, "accuracy", "own_frozen_acc", "bp_frozen_acc", "shallow_acc", "max_growth", "hidden_norm_last",
          "grad_norm_last", "stability", "three_check", "four_check", "finite", "stopped_after",
          *(f"{check}_{part}" for check in CHECKS for part in ("fires", "distance", "borderline")))  # fmt: skip


def measured_folder(folder: str | Path | None) -> Path:
    """Return the given folder, or else the one that comes with the project.

    Raises:
        AuditError: there is none, or it holds no tables.
    """
    found = provided(folder or FOLDER)
    if not settings_in(found):
        raise AuditError(
            f"--from: found no tables SETTING/runs.csv in '{found}'; expected a folder such as "
            f"{FOLDER} of the project,"
            " or results/tidy of your own: name it with --from."
        )
    return found


def settings_in(folder: Path) -> list[str]:
    """Return the settings that have a table of runs, sorted."""
    return sorted(path.parent.name for path in folder.glob("*/runs.csv"))


def tables_of(folder: Path, settings: Iterable[str], names: Sequence[str] = MEASURED) -> list[Path]:
    """Return the paths of the tables of settings; tables of trajectories may be missing.

    Raises:
        AuditError: another table is missing, or the table of runs lacks columns.
    """
    paths = [folder / setting / f"{name}.csv" for setting in settings for name in names]
    for path in paths:
        if not path.is_file() and path.stem != "trajectories":
            known = listed(settings_in(folder)) or "none"
            raise AuditError(
                f"setting '{path.parent.name}': no file '{path}'; '{folder}' has the settings "
                f"{known}."
            )
        found = set(read_table(path)) if path.stem == "runs" else set(NEEDED)
        if missing := [name for name in NEEDED if name not in found]:
            raise AuditError(
                f"{path}: missing the columns {listed(missing)}; expected a table of the workflow."
            )
    return [path for path in paths if path.is_file()]


def read_measured(folder: Path) -> Tidy:
    """Read every setting's runs and the costs of their trainings; errors as in `tables_of`."""
    return read_tidy(tables_of(folder, settings_in(folder), ("runs", "work")))
