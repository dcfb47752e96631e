"""`fa-audit list`: the methods, architectures and data sets to choose from."""

from __future__ import annotations

import argparse
import sys

from fa_audit.cli.completion import completed
from fa_audit.core.registry import documentation, load
from fa_audit.data import DATASETS
from fa_audit.methods import METHODS
from fa_audit.methods.info import stated
from fa_audit.networks import ARCHITECTURES, architecture_options

KINDS = {"methods": METHODS, "architectures": ARCHITECTURES, "datasets": DATASETS}


def list_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit list`."""
    parser.set_defaults(command=_list)
    parser.add_argument(
        "kind",
        nargs="?",
        choices=KINDS,
        metavar="KIND",
        help="methods, architectures or datasets; default all three",
    )
    names = parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="list only these, such as dfa or package.module:Name; default all registered ones",
    )
    completed(names, [*METHODS, *ARCHITECTURES, *DATASETS])


def _list(options: argparse.Namespace) -> None:
    kinds = [options.kind] if options.kind else KINDS
    for kind in kinds:
        if not options.kind:
            print(f"{kind}:")
        for name in options.names or KINDS[kind]:
            print(f"{name:<17} {_summary(kind, name)}")
            if kind == "architectures":
                defaults = architecture_options(name).items()
                print(" " * 17, "options:", ", ".join(f"{key}={value}" for key, value in defaults))


def _summary(kind: str, name: str) -> str:
    """Return one line about a method, an architecture or a data set."""
    if kind == "methods":
        # Importing a registered method would import torch, which takes seconds.
        if name not in METHODS:
            load("method", METHODS, name)
        return stated(name).summary
    if kind == "datasets":
        text = documentation("dataset", DATASETS, name)
    else:
        # Architectures are described in their modules' docstrings.
        made = load("architecture", ARCHITECTURES, name)
        text = sys.modules[made.__module__].__doc__ or made.__doc__
    return (text or "").partition("\n")[0]
