"""A table as a value, and its text as CSV, markdown, LaTeX and HTML. Pure functions."""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

LATEX_SPECIAL = str.maketrans(
    {character: rf"\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"[": "{[}", "*": "{*}"}  # which a line break before them would take for its own
)
MARKDOWN_SPECIAL = str.maketrans({character: rf"\{character}" for character in r"\|*_<`$[]~&"})
LONGEST_HEADING, LONGEST_TEXT = 8, 18  # characters, after which LaTeX gets a line break
WHOLE_WORDS = {"break_long_words": False, "break_on_hyphens": False}
# Tables that are too wide for the page shrink to its width; the others keep their size.
LATEX_FIT = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%"
HTML_STYLE = (
    "body{font:14px sans-serif}table{border-collapse:collapse}caption{text-align:left;padding-bottom:1em}"
    "th,td{padding:3px 8px;border-bottom:1px solid #ccc}th{text-align:left;border-bottom:2px solid #333}"
)
NORM = re.compile(r"\|\|(\w+)\|\|")  # ||g_L||


@dataclass(frozen=True)
class Number:
    """A number as a cell.

    Without `decimals` it has three significant digits, or two and a power of ten from 1000 and below 0.01.
    """

    value: float | None  # None where nothing was measured
    decimals: int | None = None  # digits after the point
    deviation: float | None = None  # printed behind ± with the same decimals
    signed: bool = False  # print a plus sign, too
    measured: int = 1  # seeds that stand behind the value,
    of: int = 1  # of so many; both printed where some are missing
    absent: str = ""  # what is printed where there is no value; a dash if empty


@dataclass(frozen=True)
class Table:
    """A table: cells as they are printed, and the numbers behind them in full precision for the CSV.

    In LaTeX ``||g_L||`` becomes a norm, and a line break in a text, a space elsewhere, a line break.
    """

    caption: str  # what it shows and how its numbers were formed
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Number, ...], ...]
    values: pd.DataFrame  # see the module that builds the table


def to_csv(table: Table) -> str:
    """Format the values in full precision; an empty field means that there is none."""
    return table.values.to_csv(index=False, lineterminator="\n")


def to_markdown(table: Table) -> str:
    """Format a GitHub-flavoured table under its caption."""
    rules = ["---:" if right else "---" for right in _right_aligned(table)]
    rows = [[render(cell, MARKDOWN) for cell in row] for row in table.rows]
    lines = [[escape_markdown(column) for column in table.columns], rules, *rows]
    return f"{escape_markdown(table.caption)}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_text(table: Table) -> str:
    """Format a table for a terminal: aligned columns without the caption."""
    lines = [table.columns, *([render(cell, PLAIN) for cell in row] for row in table.rows)]
    right = [False, *_right_aligned(table)[1:]] if table.rows else [False] * len(table.columns)
    widths = [max(map(len, column)) for column in zip(*lines)]
    padded = ([cell.rjust(n) if r else cell.ljust(n) for cell, n, r in zip(line, widths, right)] for line in lines)
    return "".join("  ".join(line).rstrip() + "\n" for line in padded)


def to_latex(table: Table, origin: str) -> str:
    r"""Format a ``table*`` with booktabs rules, no wider than the page; the document needs booktabs and graphicx.

    Headings and long texts are broken into lines. Characters beyond ASCII pass as UTF-8, which every LaTeX reads,
    though with pdfLaTeX and its usual fonts not those of every script.

    Args:
        origin: what the table was made from, for a comment.
    """
    alignment = "".join("r" if right else "l" for right in _right_aligned(table))
    headings = [_latex_lines(*column, "b", LONGEST_HEADING) for column in zip(table.columns, alignment)]
    rows = [[render(cell, LATEX) for cell in row] for row in table.rows]
    heading, *body = (" & ".join(line) + r" \\" for line in [headings, *rows])
    return "\n".join(
        [
            "% needs \\usepackage{booktabs,graphicx}",
            *(f"% {part}" for part in origin.split("; ")),
            r"\begin{table*}[!htbp]",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{escape_latex(table.caption)}}}\medskip",
            LATEX_FIT,
            rf"\begin{{tabular}}{{@{{}}{alignment}@{{}}}}",
            *(r"\toprule", heading, r"\midrule", *body, r"\bottomrule"),
            r"\end{tabular}}",
            r"\end{table*}",
            "",
        ]
    )


def to_html(*tables: Table) -> str:
    """Format a page with tables alone, for the report."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><style>{HTML_STYLE}</style></head><body>\n'
        f"{''.join(map(_html_table, tables))}</body></html>\n"
    )


def _html_table(table: Table) -> str:
    right = _right_aligned(table)
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{_html_cells(row, right)}</tr>\n" for row in table.rows)
    return f"<table><caption>{html.escape(table.caption)}</caption>\n<tr>{head}</tr>\n{rows}</table>\n"


def _html_cells(row: tuple[str | Number, ...], right: list[bool]) -> str:
    sides = ("right" if number else "left" for number in right)
    return "".join(f'<td style="text-align:{side}">{render(cell, HTML)}</td>' for cell, side in zip(row, sides))


def escape_markdown(text: str) -> str:
    """Escape every character that markdown or a markdown table would interpret."""
    return " ".join(text.split()).translate(MARKDOWN_SPECIAL)


def escape_latex(text: str) -> str:
    """Escape LaTeX's special characters and print ``||g_L||`` as mathematics."""
    plain_and_norms = NORM.split(" ".join(text.split()))
    return "".join(
        rf"$\|{part}\|$" if position % 2 else part.translate(LATEX_SPECIAL)
        for position, part in enumerate(plain_and_norms)
    )


def _latex_lines(text: str, side: str, base: str, longest: int) -> str:
    """Break the text into lines of about `longest` characters; `base`, t or b, is the line that stands on the row's."""
    parts = (textwrap.wrap(part, longest, **WHOLE_WORDS) for part in text.splitlines())
    lines = [escape_latex(line) for part in parts for line in part]
    if len(lines) < 2:
        return "".join(lines)
    return rf"\begin{{tabular}}[{base}]{{@{{}}{side}@{{}}}}" + r"\\".join(lines) + r"\end{tabular}"


def _latex_text(text: str) -> str:
    return _latex_lines(text, "l", "t", LONGEST_TEXT)


def _right_aligned(table: Table) -> list[bool]:
    return [all(isinstance(cell, Number) for cell in column) for column in zip(*table.rows)]


@dataclass(frozen=True)
class _Dialect:
    """How one format writes text, numbers, ±, powers of ten, infinity and nothing."""

    text: Callable[[str], str]
    number: str
    plus_minus: str
    power: str
    infinity: str
    absent: str


MARKDOWN = _Dialect(escape_markdown, "{}", " ± ", "{}e{}", "inf", "–")  # noqa: RUF001 the en dash is meant
PLAIN = replace(MARKDOWN, text=lambda text: " ".join(text.split()))
HTML = _Dialect(html.escape, "{}", " ± ", "{}e{}", "inf", "–")  # noqa: RUF001 the en dash is meant
LATEX = _Dialect(_latex_text, "${}$", r" \pm ", r"{}\times10^{{{}}}", r"\infty", "--")


def render(cell: str | Number, dialect: _Dialect) -> str:
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


def _digits(value: float, decimals: int | None, dialect: _Dialect) -> str:
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
