"""Find and read audits of many settings, in a folder such as ``reference/measured``.

A folder holds ``SETTING/audits.json`` and ``SETTING/trajectories.csv``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fa_audit.core.errors import AuditError, listed
from fa_audit.core.provided import provided
from fa_audit.experiments.paths import EVIDENCE
from fa_audit.results.tidy import Tidy, read_tidy

FOLDER = "reference/measured"


def measured_folder(folder: str | Path | None) -> Path:
    """Return the folder of audits: the given one, or by default the one of the project.

    A folder of results stands for its folder ``tidy``.

    Raises:
        AuditError: the folder does not exist, or holds no audits.
    """
    found = provided(folder or FOLDER)
    if (found / "tidy").is_dir():  # a folder of results
        found /= "tidy"
    if not settings_in(found):
        raise AuditError(
            f"--from: found no audits SETTING/audits.json in '{found}'; expected a folder such as"
            f" the project's {FOLDER}, or a workflow's results/tidy."
        )
    return found


def settings_in(folder: Path) -> list[str]:
    """Return the settings that have audits, sorted."""
    return sorted(path.parent.name for path in folder.glob("*/audits.json"))


def evidence_of(folder: Path, settings: Iterable[str]) -> list[Path]:
    """Return the paths of the settings' audits, and of their trajectories if they exist.

    Raises:
        AuditError: the audits of a setting are missing.
    """
    paths = []
    for setting in settings:
        audits, trajectories = (folder / setting / name for name in EVIDENCE)
        if not audits.is_file():
            known = listed(settings_in(folder)) or "none"
            raise AuditError(
                f"setting '{setting}': no file '{audits}'; '{folder}' has the settings {known}."
            )
        paths.append(audits)
        if trajectories.is_file():
            paths.append(trajectories)
    return paths


def read_measured(folder: Path) -> Tidy:
    """Read every setting of a folder; raises the errors of `read_tidy`."""
    return read_tidy(evidence_of(folder, settings_in(folder)))
