"""Let the shell complete commands and names on Tab, by the package argcomplete."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable


def completed(argument: argparse.Action, names: Iterable[str]) -> None:
    """Let the shell complete an argument with `names` instead of file names."""
    argument.completer = lambda **_: list(names)


def answer_shell(parser: argparse.ArgumentParser) -> None:
    """Complete the command line and exit, if the shell asks for a completion."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
