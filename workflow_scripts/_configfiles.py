"""Configurations, checked before Snakemake reads them.

The profiles call this, because a file of --configfile is read before the first line of the Snakefile is: over some
files Snakemake's reader ends in a traceback, of others it tells neither the name nor the line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from _command import config_files, config_values

from fa_audit.core.errors import AuditError, first_line
from fa_audit.experiments.config_file import load_config

_checked: set[Path] = set()


def check_named() -> None:
    """Check the files and the values that the command line names, before any of them is read."""
    check(config_files())
    check_values(config_values())


def check(paths: Iterable[str | Path]) -> None:
    """Check files, each once in a process; the first odd one ends it with its one message."""
    for path in paths:
        try:
            if (place := Path(path).resolve()) not in _checked:
                load_config(path)
            _checked.add(place)
        except AuditError as error:
            sys.exit(f"fa-audit: {error}")


def check_values(pairs: Sequence[str]) -> None:
    """Check that the words after --config are pairs of a name and a value."""
    from snakemake.cli import parse_config

    try:
        parse_config(pairs)
    except (ValueError, AssertionError) as error:
        sys.exit(f"fa-audit: --config: found {' '.join(pairs)}; expected NAME=VALUE ({first_line(error)}).")
