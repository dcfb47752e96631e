"""Audit networks and report on them, without the workflow; `fa-audit COMMAND --help` has the
arguments.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from fa_audit import __version__
from fa_audit.cli import boards, lists, models, results, runs
from fa_audit.cli.completion import answer_shell
from fa_audit.core.errors import AuditError, printable, unknown
from fa_audit.core.extras import naming_extras

# Who uses a command -> its name -> what it does, and the function that adds its arguments.
GROUPS: dict[str, dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]]] = {
    "for authors of a network": {
        "audit": ("audit a model of your own, or a checkpoint", runs.audit_parser),
        "describe": (
            "propose where the states of a model are, for an audit",
            models.describe_parser,
        ),
        "report": ("fill in the reporting template from audits of one run", results.report_parser),
        "compare": ("place your audits among measured runs", boards.compare_parser),
        "draw": (
            "make figures and a table of your audits, or of measured runs",
            boards.draw_parser,
        ),
    },
    "for engineers of a training method": {
        "train": ("train one network and write its checkpoint", runs.train_parser),
        "check": ("check that a training method keeps its promises", models.check_parser),
        "list": ("list methods, architectures and data sets", lists.list_parser),
    },
    "for maintainers of measured results": {
        "leaderboard": (
            "rank measured runs and your own by what trained blocks add",
            boards.leaderboard_parser,
        ),
        "scorecard": (
            "compare published numbers with the audits that exist",
            results.scorecard_parser,
        ),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 done, 1 bad input or something that does
    not hold.
    """
    sys.path.append(os.getcwd())  # the user's own code
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # '±' on a terminal of ASCII
    try:
        with naming_extras():
            options = _parsed(sys.argv[1:] if arguments is None else arguments)
            logging.basicConfig(level=options.log_level, format="%(message)s", stream=sys.stderr)
            status = _run(options)
            sys.stdout.flush()
            return status
    except (
        BrokenPipeError
    ):  # of `| head`, which has read enough; the interpreter's last flush must not fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (AuditError, OSError) as error:
        print("fa-audit:", "\n".join(map(printable, str(error).splitlines())), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fa-audit: interrupted; run the same command again.", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    """Run a command.

    Raises:
        AuditError: user code ended the program, which would otherwise look like success.
    """
    try:
        status: int = options.command(options)
    except SystemExit as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}, line {last.lineno}"
        raise AuditError(
            f"{where}: found sys.exit({error.code!r}); expected code that returns or raises."
        ) from error
    return status


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others of this package."""

    def error(self, message: str) -> NoReturn:
        """Raise `message` as an AuditError."""
        raise AuditError(f"{message}. See: {self.prog} --help")


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; commands and options that do not exist are answered with the nearest
    one.
    """
    parser = _parser()
    answer_shell(parser)
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    options, left = parser.parse_known_args(arguments)
    if left:
        raise unknown(
            "argument", left[0], re.findall(r"--[a-z-]+", options.usage()), where=str(name)
        )
    return options


def _parser() -> argparse.ArgumentParser:
    groups = (
        "\n".join([f"{who}:", *(f"  {name:<14}{summary}" for name, (summary, _) in group.items())])
        for who, group in GROUPS.items()
    )
    parser = OneLineParser(
        prog="fa-audit",
        description=__doc__,
        epilog="\n\n".join(groups),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (summary, add_arguments) in COMMANDS.items():
        command = commands.add_parser(name, description=f"{summary[0].upper()}{summary[1:]}.")
        command.set_defaults(usage=command.format_usage, log_level=logging.INFO)
        add_arguments(command)
    return parser
