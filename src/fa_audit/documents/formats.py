"""A table as a value, and its text as CSV, markdown and HTML; LaTeX has its own module. Pure
functions.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

MARKDOWN_SPECIAL = str.maketrans({character: rf"\{character}" for character in r"\|*_<`$[]~&"})
BLOCK_MARK = re.compile(
    r"^(\d*)(>|-{2,}$|=+$|(?:#{1,6}|[-+.)])(?=\s|$))"
)  # quotations, rules, headings, lists
HTML_STYLE = (
    "body{font:14px sans-serif}table{border-collapse:collapse}caption{text-align:left;padding-bottom:1em}"
    "th,td{padding:3px 8px;border-bottom:1px solid #ccc}th{text-align:left;border-bottom:2px solid #333}"
)


@dataclass(frozen=True)
class Number:
    """A number as a cell.

    Without `decimals` it has three significant digits, or two and a power of ten from 1000 and
    below 0.01.
    """

    value: float | None  # None where nothing was measured
    decimals: int | None = None  # digits after the point
    deviation: float | None = None  # printed behind ± with the same decimals
    signed: bool = False  # print a plus sign, too
    measured: int = 1  # seeds measured,
    of: int = 1  # seeds expected; both printed where some are missing
    absent: str = ""  # printed where the value is missing; a dash if empty


@dataclass(frozen=True)
class Table:
    """A table: cells as they are printed, and the numbers behind them in full precision for the
    CSV.

    A line break in a text stays one in LaTeX and is a space elsewhere; ``||g_L||`` and ``1e-7`` are
    mathematics.
    """

    caption: str  # what it shows and how its numbers were formed
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Number, ...], ...]
    values: pd.DataFrame | None = (
        None  # see the module that builds the table; None where nothing writes them
    )


def to_csv(table: Table) -> str:
    """Format the values in full precision; a missing one is an empty field."""
    assert table.values is not None, "nothing writes the values of this table"
    return str(table.values.to_csv(index=False, lineterminator="\n"))


def to_markdown(table: Table) -> str:
    """Format a GitHub-flavoured table under its caption."""
    rules = ["---:" if right else "---" for right in right_aligned(table)]
    rows = [[render(cell, MARKDOWN) for cell in row] for row in table.rows]
    lines = [[escape_markdown(column) for column in table.columns], rules, *rows]
    caption = f"{escape_markdown(table.caption)}\n\n" if table.caption else ""
    return caption + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_text(table: Table) -> str:
    """Format a table for a terminal: aligned columns without the caption."""
    lines = [table.columns, *([render(cell, PLAIN) for cell in row] for row in table.rows)]
    right = [False, *right_aligned(table)[1:]] if table.rows else [False] * len(table.columns)
    widths = [max(map(len, column)) for column in zip(*lines)]
    padded = (
        [cell.rjust(n) if r else cell.ljust(n) for cell, n, r in zip(line, widths, right)]
        for line in lines
    )
    return "".join("  ".join(line).rstrip() + "\n" for line in padded)


def to_html(*tables: Table) -> str:
    """Format a page that holds only tables, for the report."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><style>{HTML_STYLE}</style></head><body>\n'
        f"{''.join(map(_html_table, tables))}</body></html>\n"
    )


def _html_table(table: Table) -> str:
    sides = ["right" if number else "left" for number in right_aligned(table)]
    rows = ["".join(f"<th>{html.escape(column)}</th>" for column in table.columns)]
    for row in table.rows:
        cells = (
            f'<td style="text-align:{side}">{render(cell, HTML)}</td>'
            for cell, side in zip(row, sides)
        )
        rows.append("".join(cells))
    lines = "".join(f"<tr>{row}</tr>\n" for row in rows)
    return f"<table><caption>{html.escape(table.caption)}</caption>\n{lines}</table>\n"


def one_line(text: str) -> str:
    """Return a text with single spaces in place of white space and of control characters, which no
    format can hold.
    """
    return " ".join(
        "".join(character if character.isprintable() else " " for character in text).split()
    )


def escape_markdown(text: str) -> str:
    """Escape every character that markdown or a markdown table would interpret inside a line."""
    return one_line(text).translate(MARKDOWN_SPECIAL)


def escape_block(text: str) -> str:
    """Escape as `escape_markdown`, and a mark of a heading, quotation or list at the start."""
    return BLOCK_MARK.sub(r"\1\\\2", escape_markdown(text))


def right_aligned(table: Table) -> list[bool]:
    """Return for every column whether it holds only numbers; an empty list for a table without
    rows.
    """
    return [all(isinstance(cell, Number) for cell in column) for column in zip(*table.rows)]


@dataclass(frozen=True)
class Dialect:
    """How one format writes text, numbers, ±, powers of ten, infinity and nothing."""

    text: Callable[[str], str]
    number: str
    plus_minus: str
    power: str
    infinity: str
    absent: str


MARKDOWN = Dialect(escape_markdown, "{}", " ± ", "{}e{}", "inf", "–")  # noqa: RUF001 the en dash is meant
PLAIN = replace(MARKDOWN, text=one_line)
HTML = replace(MARKDOWN, text=html.escape)


def render(cell: str | Number, dialect: Dialect) -> str:
    """Format one cell in one format."""
    if isinstance(cell, str):
        return dialect.text(cell)
    if cell.value is None or math.isnan(cell.value):
        return dialect.text(cell.absent) if cell.absent else dialect.absent
    parts = [value for value in (cell.value, cell.deviation) if value is not None]
    body = dialect.plus_minus.join(_digits(value, cell.decimals, dialect) for value in parts)
    sign = "+" if cell.signed and cell.value >= 0 else ""
    missing = f" ({cell.measured}/{cell.of})" if cell.measured < cell.of else ""
    return dialect.number.format(sign + body) + missing


def _digits(value: float, decimals: int | None, dialect: Dialect) -> str:
    """Format the digits of one number."""
    if math.isinf(value):
        return ("-" if value < 0 else "") + dialect.infinity
    if decimals is not None:
        return f"{value:z.{decimals}f}"  # z: no minus before 0.0
    short = f"{value:#.3g}".removesuffix(".")
    if "e" not in short and abs(value) >= 0.01:
        return short
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return dialect.power.format(mantissa, int(exponent))
