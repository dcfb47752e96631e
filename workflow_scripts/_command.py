"""What Snakemake's command line asks for. The rules are read before Snakemake itself says so."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace

LIMITS = ("--resources", "--res")


def dry_run() -> bool:
    """Whether it asks for a dry run, in which no hook runs."""
    return bool(getattr(_options(), "dryrun", False))


def targets() -> frozenset[str]:
    """The rules and files that it names, paths as from this folder; none stands for the default target."""
    return frozenset(map(os.path.relpath, getattr(_options(), "targets", None) or ()))


def again_with(resource: str, limit: int) -> str:
    """The same command with another limit of a resource, those of other resources kept."""
    words: list[str] = []
    limits: list[str] = []
    part = words
    for word in sys.argv[1:]:
        option, _, value = word.partition("=")
        if word.startswith("-"):
            part = limits if option in LIMITS else words
        part.append(value if option in LIMITS else word)
    kept = [entry for entry in limits if entry and entry.partition("=")[0] != resource]
    return shlex.join(["snakemake", *words, "--resources", *kept, f"{resource}={limit}"])


def _options() -> Namespace | None:
    from snakemake.cli import get_argument_parser

    try:
        return get_argument_parser().parse_known_args(sys.argv[1:])[0]
    except SystemExit:  # not Snakemake's command line: the workflow is used as a library
        return None
