"""`fa-audit methods`, `architectures` and `datasets`: what there is to choose from."""

from __future__ import annotations

import argparse
from importlib import import_module

from fa_audit.core.registry import load
from fa_audit.data import DATASETS
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURE_OPTIONS, ARCHITECTURES


def methods_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit methods`."""
    parser.set_defaults(command=_methods)


def architectures_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit architectures`."""
    parser.set_defaults(command=_architectures)


def datasets_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit datasets`."""
    parser.set_defaults(command=_datasets)


def _methods(options: argparse.Namespace) -> int:
    for name in METHODS:
        print(f"{name:<16} {load('method', METHODS, name).summary}")
    return 0


def _architectures(options: argparse.Namespace) -> int:
    for name, defaults in ARCHITECTURE_OPTIONS.items():
        module = import_module(load("architecture", ARCHITECTURES, name).__module__)
        print(f"{name:<16} {(module.__doc__ or '').splitlines()[0]}")
        print(f"{'':<16} options: {', '.join(f'{option}={value}' for option, value in defaults.items())}")
    return 0


def _datasets(options: argparse.Namespace) -> int:
    for name in DATASETS:
        print(f"{name:<16} {(load('dataset', DATASETS, name).__doc__ or '').splitlines()[0]}")
    return 0
