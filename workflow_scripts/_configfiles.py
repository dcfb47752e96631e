"""Configurations, checked before Snakemake reads them.

The profiles call this, because a file of --configfile is read before the first line of the Snakefile is: over some
files Snakemake's reader ends in a traceback, of others it tells neither the name nor the line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from _command import config_files

from fa_audit.config_file import check_config_file
from fa_audit.errors import AuditError

_checked: set[Path] = set()


def check_named() -> None:
    """Check the files that the command line names, before any of them is read."""
    check(config_files())


def check(paths: Iterable[str | Path]) -> None:
    """Check files, each once in a process; the first odd one ends it with its one message."""
    for path in paths:
        try:
            if (place := Path(path).resolve()) not in _checked:
                check_config_file(path)
            _checked.add(place)
        except AuditError as error:
            sys.exit(f"fa-audit: {error}")
