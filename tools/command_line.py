"""Make docs/command_line.md from the parser of `fa-audit`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from methods_table import ROOT, markdown

from fa_audit.cli import COMMANDS, OneLineParser

DOCUMENT = ROOT / "docs/command_line.md"
HEAD = """# Command line

`fa-audit COMMAND --help` prints the texts of this page (written by `tools/command_line.py`). The
exit status is 0 when done, even if checks of an audit fire. It is 1 after an error, an undrawn figure
or a failed `fa-audit check`. [Examples](auditing.md).

"""


def document() -> str:
    """Return the text of the document: the purpose and the arguments of every command."""
    rows = [[f"[`{name}`](#{name})", what] for name, (what, _) in COMMANDS.items()]
    summary = markdown(["command", "what"], rows)
    return HEAD + summary + "\n" + "".join(_section(name) for name in COMMANDS)


def _section(name: str) -> str:
    what, add_arguments = COMMANDS[name]
    parser = OneLineParser(prog=f"fa-audit {name}", add_help=False)
    add_arguments(parser)
    table = markdown(["argument", "what"], _rows(parser))
    return f"\n## {name}\n\n{what[0].upper()}{what[1:]}.\n\n{table}\n"


def _rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield every argument as it is typed, and its help with the default filled in."""
    for action in parser._actions:
        value = action.metavar or (
            ",".join(map(str, action.choices)) if action.choices else action.dest.upper()
        )
        # Show --no-X, too: it does the opposite of the help, which describes --X.
        typed = ", ".join(action.option_strings)
        if action.nargs != 0:
            typed = f"{typed} {value}".strip()
        more = " ..." if action.nargs in ("+", "*") else ""
        needed = "required: " if action.required and action.option_strings else ""
        text = (action.help or "") % vars(action)
        yield f"`{typed}{more}`", needed + text.replace("|", "\\|")


def made() -> Iterator[tuple[Path, str]]:
    """Yield the path of docs/command_line.md and its new text."""
    yield DOCUMENT, document()
