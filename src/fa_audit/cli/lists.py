"""`fa-audit methods`, `architectures` and `datasets`: what there is to choose from."""

from __future__ import annotations

import argparse
import sys

from fa_audit.cli.completion import completed
from fa_audit.core.registry import documentation, load
from fa_audit.data import DATASETS
from fa_audit.methods import METHODS
from fa_audit.methods.info import stated
from fa_audit.networks import ARCHITECTURES, architecture_options


def methods_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit methods`."""
    parser.set_defaults(command=_methods)
    _add_names(parser, METHODS)


def architectures_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit architectures`."""
    parser.set_defaults(command=_architectures)
    _add_names(parser, ARCHITECTURES)


def datasets_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit datasets`."""
    parser.set_defaults(command=_datasets)
    _add_names(parser, DATASETS)


def _add_names(parser: argparse.ArgumentParser, registry: dict[str, str]) -> None:
    names = parser.add_argument(
        "names",
        nargs="*",
        default=list(registry),
        metavar="NAME",
        help="only these, of which any may be package.module:Name; default all that are registered",
    )
    completed(names, registry)


def _methods(options: argparse.Namespace) -> int:
    for name in options.names:
        if name not in METHODS:
            load("method", METHODS, name)
        print(f"{name:<16} {stated(name).summary}")
    return 0


def _architectures(options: argparse.Namespace) -> int:
    for name in options.names:
        kind = load("architecture", ARCHITECTURES, name)
        print(f"{name:<16} {_first_line(sys.modules[kind.__module__].__doc__ or kind.__doc__)}")
        defaults = architecture_options(name).items()
        print(f"{'':<16} options: {', '.join(f'{option}={value}' for option, value in defaults)}")
    return 0


def _datasets(options: argparse.Namespace) -> int:
    for name in options.names:
        print(f"{name:<16} {_first_line(documentation('dataset', DATASETS, name))}")
    return 0


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]
