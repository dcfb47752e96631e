"""Train networks, audit them and report on them, without the workflow."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from fa_audit import __version__
from fa_audit.cli import audit, board, lists, models, results, train
from fa_audit.cli.completion import answer_shell
from fa_audit.core.errors import AuditError, printable
from fa_audit.core.registry import naming_extras

# Command -> its summary, and the function that adds its arguments.
COMMANDS = {
    "audit": ("audit a model of your own, or a checkpoint", audit.audit_parser),
    "describe": ("propose where the states of a model are", models.describe_parser),
    "report": ("report on the audits of one run", results.report_parser),
    "board": ("rank the project's runs and yours by accuracy", board.board_parser),
    "draw": ("draw your audits, or the figures and tables of a configuration", board.draw_parser),
    "train": ("train one network and write its checkpoint", train.train_parser),
    "check": ("test that a training method behaves as audits assume", models.check_parser),
    "list": ("list methods, architectures and data sets", lists.list_parser),
    "scorecard": ("compare published numbers with audits", results.scorecard_parser),
}


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports an error on one line, like all other errors of this package."""

    def error(self, message: str) -> NoReturn:
        """Raise `message` as an AuditError."""
        raise AuditError(f"{message}. See: {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0 when done, 1 after an error or a failed check, 130 if interrupted."""
    # An ASCII terminal cannot show '±'.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = _parser()
    answer_shell(parser)
    try:
        with naming_extras():
            # The user's own code lies in the working folder.
            sys.path.append(os.getcwd())
            options = parser.parse_args(arguments)
            logging.basicConfig(level=options.log_level, format="%(message)s", stream=sys.stderr)
            failed = _run(options)
            if sys.stdout:  # a shell may have closed it
                sys.stdout.flush()
            return 1 if failed else 0
    except BrokenPipeError:
        # `| head` closed the pipe; without this the interpreter's last flush would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (AuditError, OSError) as error:
        text = "\n".join(map(printable, str(error).splitlines()))
        print(f"fa-audit: {text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fa-audit: interrupted; run the same command again.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="fa-audit", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (summary, add_arguments) in COMMANDS.items():
        description = f"{summary[0].upper()}{summary[1:]}."
        command = commands.add_parser(name, help=summary, description=description)
        command.set_defaults(log_level=logging.INFO)
        add_arguments(command)
    return parser


def _run(options: argparse.Namespace) -> bool | None:
    """Run a command; return true if it ran, but its result is a failure, such as a failed check.

    Raises:
        AuditError: user code called sys.exit, whose status would be taken for the command's.
    """
    try:
        return options.command(options)
    except SystemExit as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise AuditError(
            f"{last.filename}, line {last.lineno}: found sys.exit({error.code!r}); expected code"
            " that returns or raises."
        ) from error
