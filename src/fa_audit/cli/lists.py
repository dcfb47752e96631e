"""`fa-audit methods`, `architectures` and `datasets`: what there is to choose from."""

from __future__ import annotations

import argparse

from fa_audit.cli.completion import completed
from fa_audit.core.registry import documentation, load
from fa_audit.data import DATASETS, SUMMARIES
from fa_audit.methods import METHODS
from fa_audit.methods.info import stated
from fa_audit.networks import ARCHITECTURES, INFO, architecture_options


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
        defaults = architecture_options(name)
        summary = INFO[name].summary if name in INFO else _first_line("architecture", name)
        print(f"{name:<16} {summary}")
        print(f"{'':<16} options: {', '.join(f'{option}={value}' for option, value in defaults.items())}")
    return 0


def _datasets(options: argparse.Namespace) -> int:
    for name in options.names:
        print(f"{name:<16} {SUMMARIES[name] if name in SUMMARIES else _first_line('dataset', name)}")
    return 0


def _first_line(kind: str, name: str) -> str:
    return documentation(kind, name).partition("\n")[0]
