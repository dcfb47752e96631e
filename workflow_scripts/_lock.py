"""The lock that keeps two workflows out of one folder. Snakemake's own outlives a killed process; this one does not."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fa_audit.core.errors import AuditError
from fa_audit.core.files import exclusive, not_written

FOLDER_LOCK = Path(".snakemake/fa-audit.lock")
_held = contextlib.ExitStack()  # until the process ends, however it ends


def claim_folder() -> None:
    """Hold the folder for this workflow.

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
