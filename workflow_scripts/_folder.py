"""Checks of the working folder before the first job: no other workflow, writable, room on the disk, data sets sound."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fa_audit.core.errors import AuditError
from fa_audit.core.files import exclusive, not_written
from fa_audit.data.data_file import read_data_file

WRITTEN = ("results", ".snakemake")
FOLDER_LOCK = Path(".snakemake/fa-audit.lock")
BLOCK = 4096  # bytes: what file systems hand out
_held = contextlib.ExitStack()  # until the process ends, however it ends


def check_writable() -> None:
    """Check that jobs and Snakemake itself can write into every folder of results.

    Raises:
        AuditError: a folder cannot be written to, or something else stands in its place.
    """
    for root in map(Path, WRITTEN):
        if (root.exists() or root.is_symlink()) and not root.is_dir():
            raise AuditError(
                f"{root}: found no folder (a file, or a link to nothing); expected a folder. Move it away."
            )
        for folder in [place for place, _, _ in os.walk(root)] or [root if root.exists() else "."]:
            if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                raise AuditError(
                    f"{Path(folder).resolve()}: cannot be written to, so no job was started. Make it writable (is its"
                    " disk mounted read-only? who owns it?), or work in a copy of the project."
                )


def check_room() -> None:
    """Write a block to the disk: on a full one Snakemake would go on without its records.

    Raises:
        AuditError: the block was not written.
    """
    for folder in map(Path, WRITTEN):
        folder = folder if folder.exists() else Path(".")
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
                probe.write(bytes(BLOCK))
        except OSError as error:
            raise not_written(folder / "probe", error) from error


def check_data(datasets: Iterable[str]) -> None:
    """Read the data sets that are there: a job would refuse a damaged one, but its results would be removed before.

    Raises:
        AuditError: one is truncated, foreign or altered.
    """
    for path in sorted(Path(f"results/data/{name}.safetensors") for name in datasets):
        if path.exists():
            read_data_file(path, "np")


def claim_folder() -> None:
    """Hold the folder for this workflow. Snakemake's own lock outlives a killed process; this one does not.

    Raises:
        AuditError: another workflow is at work here, or the disk is full.
    """
    try:
        _held.enter_context(exclusive(FOLDER_LOCK, wait=False))
    except BlockingIOError as error:
        raise AuditError(
            f"another snakemake ({error.strerror}) is at work in {Path.cwd()}; wait for it or stop it, then run again."
        ) from None
    except OSError as error:
        raise not_written(FOLDER_LOCK, error) from error
