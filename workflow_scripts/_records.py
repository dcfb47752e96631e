"""Snakemake's records of how files were made, and what keeps failed jobs from passing for done.

Snakemake removes what a job is to make before the job starts, and records it as made even where the job failed: if what
is made from it is there from earlier, the same command then finds nothing to be done. So the outputs of a workflow's
jobs are listed when it starts; whoever plans next marks the records of the missing ones, and their jobs are done again.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from fa_audit.errors import AuditError
from fa_audit.files import read_json, write_json, write_text

RECORDS, STARTED = Path(".snakemake/metadata"), Path(".snakemake/fa-audit.started.json")
FAILED = ["the job failed"]  # in place of the parameters of a job, which then have changed


def note_started(outputs: Iterable[str]) -> None:
    """List what the jobs of this workflow are to make."""
    write_json(STARTED, sorted(outputs))


def note_finished() -> None:
    """All of it was made: what is deleted from now on is not missed."""
    STARTED.unlink(missing_ok=True)


def mark_failed() -> None:
    """Mark the records of files that the last workflow in this folder should have made and did not."""
    started = read_json(STARTED) if STARTED.exists() else []
    for output in started:
        with contextlib.suppress(AuditError, OSError):  # no record, half of one, or a folder that is read-only
            if not os.path.lexists(output):
                record = record_of(output)
                write_text(record, json.dumps(read_json(record) | {"params": FAILED}))


def record_of(output: str) -> Path:
    """The record of a file: its name is the file's in base64, cut into folders where it is too long for one."""
    name, longest = base64.urlsafe_b64encode(output.encode()).decode(), os.pathconf(RECORDS, "PC_NAME_MAX") - 1
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
