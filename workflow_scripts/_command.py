"""What Snakemake's command line asks for. The rules are read before Snakemake itself says so."""

from __future__ import annotations

import os
import sys
from argparse import Namespace


def dry_run() -> bool:
    """Whether it asks for a dry run, in which no hook runs."""
    return bool(getattr(_options(), "dryrun", False))


def targets() -> frozenset[str]:
    """The rules and files that it names, paths as from this folder; none stands for the default target."""
    return frozenset(map(os.path.relpath, getattr(_options(), "targets", None) or ()))


def _options() -> Namespace | None:
    from snakemake.cli import get_argument_parser

    try:
        return get_argument_parser().parse_known_args(sys.argv[1:])[0]
    except SystemExit:  # not Snakemake's command line: the workflow is used as a library
        return None
