"""`fa-audit check`: a training method of one's own, before it is trained in earnest."""

from __future__ import annotations

import argparse
import logging

from fa_audit.cli.completion import completed
from fa_audit.methods import METHODS


def check_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit check`."""
    parser.set_defaults(command=_check, log_level=logging.WARNING)  # its many small trainings are no news
    method = parser.add_argument("method", help="my_file:ClassName, or one of `fa-audit methods`")
    completed(method, METHODS)


def _check(options: argparse.Namespace) -> int:
    from fa_audit.testing import CHECKS, conformance

    found = conformance(options.method)
    for name in found.passed:
        print(f"passed  {name:<14} {(CHECKS[name].__doc__ or '').splitlines()[0].replace('`', '')}")
    for name, finding in found.findings.items():
        print(f"FAILED  {name:<14} {finding}")
    if found.follows:
        print(f"not run, since they rest on what failed: {', '.join(found.follows)}")
    print(f"{found.name}: {len(found.passed)} of {len(CHECKS)} checks passed, {len(found.findings)} failed")
    return 1 if found.findings else 0
