"""Check a working folder before work begins: writable, with room on its disk, and used by nobody
else.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fa_audit.core.errors import AuditError
from fa_audit.core.files import exclusive, not_written

BLOCK = 4096  # bytes, the unit in which file systems give out space
_held = contextlib.ExitStack()  # locks, held until the process ends, however it ends


def check_writable(roots: Iterable[str | Path]) -> None:
    """Check that files can be written in `roots` and the folders below. A root may be missing;
    unreadable folders below are not checked.

    Raises:
        AuditError: a folder cannot be written to, or something else is in its place.
    """
    for root in map(Path, roots):
        if (root.exists() or root.is_symlink()) and not root.is_dir():
            raise AuditError(
                f"{root}: found no folder; a file or a broken link is in its place. Move it away."
            )
        # os.walk skips an unreadable root, so check the root itself; if it is missing, check '.',
        # where it will be made.
        first = str(root) if root.exists() else "."
        for folder in (first, *(place for place, _, _ in os.walk(root))):
            if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                raise AuditError(
                    f"{Path(folder).resolve()}: cannot be read and written, so no job was started."
                    " Make it readable and writable (is its disk mounted read-only? who owns it?), or"
                    " work in a copy of the project."
                )


def check_room(roots: Iterable[str | Path]) -> None:
    """Check that every folder in `roots` has room on its disk, by writing a block to the folder. A
    missing folder will be made in '.', so the block is written there.

    Raises:
        AuditError: the block was not written.
    """
    for folder in map(Path, roots):
        folder = folder if folder.exists() else Path(".")
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
                probe.write(bytes(BLOCK))
        except OSError as error:
            raise not_written(folder / "probe", error) from error


def claim(lock: str | Path) -> None:
    """Hold the lock file of the working folder until this process ends, even if it is killed.

    Raises:
        AuditError: another process holds it, or the disk is full.
    """
    try:
        _held.enter_context(exclusive(lock, wait=False))
    except BlockingIOError as error:
        raise AuditError(
            f"another workflow ({error.strerror}) is at work in {Path.cwd()}; wait for it or "
            "stop it, then run again."
        ) from None
    except OSError as error:
        raise not_written(Path(lock), error) from error
