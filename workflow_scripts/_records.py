"""Snakemake's records of how files were made, and what keeps failed jobs from passing for done.

Snakemake removes what a job is to make before the job starts, and records it as made even where the job failed: if what
is made from it is there from earlier, the same command then finds nothing to be done. So the outputs of a workflow's
jobs are listed when it starts; when it has ended, the records of those that are missing are marked, and their jobs are
done again. After a workflow that was killed, whoever plans next does that.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from _lock import FOLDER_LOCK

from fa_audit.core.errors import AuditError
from fa_audit.core.files import exclusive, read_json, write_json

RECORDS, STARTED = Path(".snakemake/metadata"), Path(".snakemake/fa-audit.started.json")
FAILED = ["the job failed"]  # in place of the parameters of a job, which then have changed


def note_started(outputs: Iterable[str]) -> None:
    """List what the jobs of this workflow are to make."""
    write_json(STARTED, sorted(outputs))


def settle() -> None:
    """Mark the records of what was listed and is missing, and drop the list; for whoever holds the folder.

    What is deleted from then on is not missed.

    Raises:
        AuditError: the list is cut short.
    """
    if STARTED.exists():
        for output in read_json(STARTED, "the outputs of a workflow"):
            if not os.path.lexists(output):
                _mark(record_of(output))
        STARTED.unlink()


def settle_after_a_kill() -> None:
    """The same for the last workflow in this folder, unless it is still at work, or the folder is read-only.

    Raises:
        AuditError: the list is cut short.
    """
    if STARTED.exists():
        with contextlib.suppress(OSError), exclusive(FOLDER_LOCK, wait=False):
            settle()


def _mark(record: Path) -> None:
    """Written in place, as Snakemake does: a record keeps its owner and its mode."""
    with contextlib.suppress(FileNotFoundError, AuditError):  # no record, or half of one, which Snakemake passes over
        record.write_text(json.dumps(read_json(record) | {"params": FAILED}), encoding="utf-8")


def record_of(output: str) -> Path:
    """The record of a file: its name is the file's in base64, cut into folders where it is too long for one."""
    name, longest = base64.urlsafe_b64encode(output.encode()).decode(), (os.pathconf(".", "PC_NAME_MAX") or 255) - 1
    parts = [name[start : start + longest] for start in range(0, len(name), longest)]
    return RECORDS.joinpath(*(f"@{part}" for part in parts[:-1]), parts[-1])


def recorded_path(record: Path) -> Path:
    """The file that a record is about.

    Raises:
        AuditError: it is no record, or half of one, which Snakemake would pass over.
    """
    read_json(record)
    try:
        return Path(base64.urlsafe_b64decode("".join(record.relative_to(RECORDS).parts).replace("@", "")).decode())
    except ValueError as error:
        raise AuditError(f"{record}: no record that snakemake wrote ({error}); delete it.") from error
