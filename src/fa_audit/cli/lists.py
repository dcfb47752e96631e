"""`fa-audit methods`, `architectures` and `datasets`: what there is to choose from."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from fa_audit.cli.completion import completed
from fa_audit.core.registry import entry_of, load
from fa_audit.core.source import docstring
from fa_audit.data import DATASETS
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES, architecture_options


def methods_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit methods`."""
    _list_parser(parser, METHODS, _methods)


def architectures_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit architectures`."""
    _list_parser(parser, ARCHITECTURES, _architectures)


def datasets_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit datasets`."""
    _list_parser(parser, DATASETS, _datasets)


def _list_parser(
    parser: argparse.ArgumentParser, known: Iterable[str], command: Callable[[argparse.Namespace], int]
) -> None:
    parser.set_defaults(command=command)
    names = parser.add_argument("names", nargs="*", metavar="NAME", help="these alone, my_file:Name among them")
    completed(names, known)


def _methods(options: argparse.Namespace) -> int:
    for name in options.names or METHODS:
        print(f"{name:<16} {load('method', METHODS, name).summary}")
    return 0


def _architectures(options: argparse.Namespace) -> int:
    for name in options.names or ARCHITECTURES:
        defaults, entry = architecture_options(name), entry_of("architecture", ARCHITECTURES, name)
        print(f"{name:<16} {_first_line(docstring(entry.partition(':')[0]) or docstring(entry))}")
        print(f"{'':<16} options: {', '.join(f'{option}={value}' for option, value in defaults.items())}")
    return 0


def _datasets(options: argparse.Namespace) -> int:
    for name in options.names or DATASETS:
        print(f"{name:<16} {_first_line(docstring(entry_of('dataset', DATASETS, name)))}")
    return 0


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")
