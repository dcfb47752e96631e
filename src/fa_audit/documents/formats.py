"""The class of a table, and pure functions that format it as CSV, markdown, plain text and HTML.

`fa_audit.documents.latex` formats a table as LaTeX.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_MARKDOWN_SPECIAL = str.maketrans({character: rf"\{character}" for character in r"\|*_<`$[]~&"})
_FORMULA_MARKS = ("=", "+", "-", "@", "\t", "\r")  # begin a formula in a spreadsheet
_HTML_STYLE = (
    "<style>body{font:14px sans-serif}table{border-collapse:collapse}"
    "th,td{padding:3px 8px;border-bottom:1px solid #ccc}</style>"
)


@dataclass(frozen=True)
class Number:
    """A number as a cell.

    Without `decimals` it is printed with three significant digits. From 1000 on and below 0.01 it
    is printed with two digits and a power of ten.
    """

    value: float | None  # None if nothing was measured
    decimals: int | None = None  # digits after the point
    deviation: float | None = None  # printed behind ± with the same decimals
    signed: bool = False  # print a plus sign, too
    measured: int = 1  # number of seeds measured
    of: int = 1  # number of seeds expected; both are printed if some are missing
    absent: str = ""  # printed if the value is missing; a dash if empty
    interval: tuple[float, float] | None = None  # printed in brackets


@dataclass(frozen=True)
class Table:
    """A table: printed cells, and the numbers behind them in full precision for the CSV.

    ``||g_L||`` and ``1e-7`` in texts are set as mathematics by formats that have it.
    """

    caption: str  # what it shows and how its numbers were formed
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Number, ...], ...]
    values: pd.DataFrame | None = None  # None if no CSV is written
    name: str = ""  # name of the file without its ending
    origin: str = ""  # the code and inputs that made it, separated by semicolons


def to_csv(table: Table) -> str:
    """Format the values in full precision; a missing one is an empty field.

    Put an apostrophe before a text that a spreadsheet would take for a formula.
    """
    assert table.values is not None, "a CSV needs a table with `values`"
    return str(table.values.map(_inert).to_csv(index=False, lineterminator="\n"))


def _inert(value: Any) -> Any:
    is_formula = isinstance(value, str) and value.startswith(_FORMULA_MARKS)
    return f"'{value}" if is_formula else value


def to_markdown(table: Table) -> str:
    """Format a GitHub-flavoured table under its caption."""
    rules = ["---" + ":" * right for right in right_aligned(table)]
    lines = [[escape_markdown(column) for column in table.columns], rules]
    lines += rendered(table, _MARKDOWN)
    caption = f"{escape_markdown(table.caption)}\n\n" if table.caption else ""
    return caption + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_text(table: Table) -> str:
    """Format a table for a terminal: aligned columns without the caption."""
    lines = [list(table.columns), *rendered(table, PLAIN)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = ""
    for first, *others in lines:
        padded = map(str.rjust, others, widths[1:])
        text += "  ".join([first.ljust(widths[0]), *padded]).rstrip() + "\n"
    return text


def to_html(table: Table) -> str:
    """Format an HTML page with the table, for `snakemake --report`."""
    import pandas as pd

    frame = pd.DataFrame(rendered(table, PLAIN), columns=table.columns)
    # Without this option pandas cuts long texts.
    with pd.option_context("display.max_colwidth", None):
        body = frame.to_html(index=False, border=0, justify="left")
    caption = f"<p>{html.escape(table.caption)}</p>"
    return f'<!DOCTYPE html>\n<meta charset="utf-8">{_HTML_STYLE}\n{caption}\n{body}\n'


def one_line(text: str) -> str:
    """Put single spaces in place of white space and unprintable characters."""
    visible = (character if character.isprintable() else " " for character in text)
    return " ".join("".join(visible).split())


def escape_markdown(text: str) -> str:
    """Escape every character that markdown or a markdown table would interpret inside a line."""
    return one_line(text).translate(_MARKDOWN_SPECIAL)


def right_aligned(table: Table) -> list[bool]:
    """Return for every column whether it holds only numbers; False in a table without rows."""
    right = []
    for index, _ in enumerate(table.columns):
        are_numbers = all(isinstance(row[index], Number) for row in table.rows)
        right.append(are_numbers and bool(table.rows))
    return right


@dataclass(frozen=True)
class Dialect:
    """How one format writes text, numbers, ±, powers of ten, infinity and missing values."""

    text: Callable[[str], str]
    number: str = "{}"
    plus_minus: str = " ± "
    power: str = "{}e{}"
    infinity: str = "inf"
    absent: str = "–"  # noqa: RUF001 the en dash is meant


PLAIN = Dialect(one_line)
_MARKDOWN = Dialect(escape_markdown)


def rendered(table: Table, dialect: Dialect) -> list[list[str]]:
    """Format all cells in one format."""
    return [[render(cell, dialect) for cell in row] for row in table.rows]


def render(cell: str | Number, dialect: Dialect) -> str:
    """Format one cell in one format."""
    if isinstance(cell, str):
        return dialect.text(cell)
    if cell.value is None or math.isnan(cell.value):
        return dialect.text(cell.absent) if cell.absent else dialect.absent
    body = _digits(cell.value, cell, dialect)
    if cell.deviation is not None:
        unsigned = replace(cell, signed=False)
        body += dialect.plus_minus + _digits(cell.deviation, unsigned, dialect)
    text = dialect.number.format(body)
    if cell.interval:
        ends = ", ".join(_digits(end, cell, dialect) for end in cell.interval)
        text += f" {dialect.text('[')}{dialect.number.format(ends)}{dialect.text(']')}"
    missing = f" ({cell.measured}/{cell.of})" if cell.measured < cell.of else ""
    return text + missing


def _digits(value: float, cell: Number, dialect: Dialect) -> str:
    """Format the digits of one number of a cell."""
    sign = "+" if cell.signed and value >= 0 else ""
    if math.isinf(value):
        return ("-" if value < 0 else sign) + dialect.infinity
    if cell.decimals is not None:
        return f"{sign}{value:z.{cell.decimals}f}"  # z: no minus before 0.0
    # The # keeps trailing zeros: 0.5 becomes 0.500.
    short = f"{value:#.3g}".removesuffix(".")
    if "e" not in short and abs(value) >= 0.01:
        return sign + short
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return sign + dialect.power.format(mantissa, int(exponent))
