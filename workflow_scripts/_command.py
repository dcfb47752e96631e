"""What Snakemake's command line asks for. The rules are read before Snakemake itself says so."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

LIMITS = ("--resources", "--res")


def dry_run() -> bool:
    """Whether it asks for a dry run, in which no hook runs."""
    return bool(getattr(_options(), "dryrun", False))


def targets() -> frozenset[str]:
    """The rules and files that it names, paths as from this folder; none stands for the default target."""
    return frozenset(map(os.path.relpath, getattr(_options(), "targets", None) or ()))


def config_files() -> list[Path]:
    """The files of --configfile, as they are written there."""
    return list(getattr(_options(), "configfile", None) or ())


def config_values() -> list[str]:
    """The words after --config."""
    return list(getattr(_options(), "config", None) or ())


def again_with(limits: Mapping[str, object], resource: str, limit: int) -> str:
    """The same command with another limit of a resource.

    Args:
        limits: those in force, of all resources, wherever they stand: an option replaces a profile's.
    """
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    words, targets = ["snakemake"], sys.argv[end + 1 :]
    part = words
    for word in sys.argv[1:end]:
        option, equals, _ = word.partition("=")
        if word.startswith("-"):  # values of a limit are the words that follow; after an = there is one only
            part = words if option not in LIMITS else targets if equals else []
        if option not in LIMITS:
            part.append(word)
    kept = [f"{name}={value}" for name, value in limits.items() if name != resource]
    return shlex.join([*words, "--resources", *kept, f"{resource}={limit}", *(["--", *targets] if targets else [])])


def _options() -> Namespace | None:
    from snakemake.cli import get_argument_parser

    try:
        return get_argument_parser().parse_known_args(sys.argv[1:])[0]
    except SystemExit:  # not Snakemake's command line: the workflow is used as a library
        return None
