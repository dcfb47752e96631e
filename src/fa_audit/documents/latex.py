r"""A table as LaTeX: a float with a caption, a label and notes, as wide as the text at most. Pure
functions.

The document needs ``\usepackage{booktabs,graphicx}``. Long texts are broken into lines; a table of
many columns has them in two or more panels, one below the other; one of many rows goes on in a
second float. LaTeX scales a panel that is still too wide down to the width of the text.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from html.entities import codepoint2name
from itertools import chain
from typing import NamedTuple

from fa_audit.documents.document import Document, Entry, capital
from fa_audit.documents.formats import (
    PLAIN,
    Dialect,
    Number,
    Table,
    one_line,
    render,
    right_aligned,
)

PACKAGES = "booktabs,graphicx"
LONGEST_HEADING, LONGEST_NAME, LONGEST_TEXT = (
    9,
    26,
    22,
)  # characters of a line: of headings, first columns, others
WIDEST, HIGHEST = 100, 44  # most characters across and lines down a float that is still readable
HELD = (
    16  # floats of one table after which LaTeX must place them: too many pending ones are an error
)


# --- text ----------------------------------------------------------------------------------------------------------

SPECIAL = str.maketrans(
    {character: rf"\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"[": "{[}", "*": "{*}"}  # else a line break takes them for its options
)
LETTERS = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"  # named alike in HTML and LaTeX
SYMBOLS = {letter: rf"\{codepoint2name[ord(letter)]}" for letter in LETTERS} | {
    ">=": r"\ge", "<=": r"\le", "≥": r"\ge", "≤": r"\le", "±": r"\pm", "×": r"\times", "−": "-",  # noqa: RUF001
    "≈": r"\approx", "→": r"\to", "∞": r"\infty", "‖": r"\|", "·": r"\cdot", "log10": r"\log_{10}",
}  # fmt: skip
MATHEMATICS = re.compile(
    r"\|\|(?P<norm>\w+(?:\+1)?)\|\|"
    r"|(?:(?<![.\w])|(?<=penalty))(?P<mantissa>\d+(?:\.\d+)?)e(?P<exponent>[+-]?\d{1,3})(?!\w)"
    r"|(?P<index>\b[hgafB]_[lL\d]\b)|(?P<minus>(?<![^\s(\[])-(?=\d))"
    rf"|(?P<symbol>{'|'.join(map(re.escape, SYMBOLS))})"
)


def escape_latex(text: str) -> str:
    """Escape LaTeX's special characters; write norms, powers of ten, minus signs, relations and
    Greek as mathematics.

    Characters of other scripts pass as UTF-8, which XeLaTeX and LuaLaTeX read, and pdfLaTeX where
    it has a font.

    >>> escape_latex("50% of ||g_L|| >= 1e-7")
    '50\\\\% of $\\\\|g_L\\\\|$ $\\\\ge$ $10^{-7}$'
    """
    text, written, end = one_line(text), [], 0
    for found in MATHEMATICS.finditer(text):
        written += [text[end : found.start()].translate(SPECIAL), f"${_mathematics(found)}$"]
        end = found.end()
    return "".join([*written, text[end:].translate(SPECIAL)])


def _mathematics(found: re.Match[str]) -> str:
    kind, text = str(found.lastgroup), found[0]
    if kind == "norm":
        return r"\|" + re.sub(r"_(\w\+1)", r"_{\1}", found["norm"]) + r"\|"
    if kind == "exponent":
        factor = "" if found["mantissa"] == "1" else rf"{found['mantissa']}\times"
        return f"{factor}10^{{{int(found['exponent'])}}}"
    return SYMBOLS.get(text, text)


def slug(*parts: str) -> str:
    """Join the letters and digits of a label's parts by hyphens.

    >>> slug("audit", "dfa+penalty1e-2 in main", "seeds")
    'audit-dfa-penalty1e-2-in-main-seeds'
    """
    return "-".join(re.sub(r"[^A-Za-z0-9]+", "-", part).strip("-") for part in parts if part)


def _broken(text: str, longest: int, side: str = "l", base: str = "t") -> str:
    """Break a text into lines of about `longest` characters; `base`, t or b, is the line aligned
    with the row's.
    """
    lines = [escape_latex(line) for line in _lines(text, longest)]
    if len(lines) < 2:
        return "".join(lines)
    return rf"\begin{{tabular}}[{base}]{{@{{}}{side}@{{}}}}" + r"\\".join(lines) + r"\end{tabular}"


def _lines(text: str, longest: int) -> list[str]:
    parts = (
        textwrap.wrap(part, longest, break_long_words=False, break_on_hyphens=False)
        for part in text.splitlines()
    )
    return [line for part in parts for line in part]


LATEX = Dialect(escape_latex, "${}$", r" \pm ", r"{}\times10^{{{}}}", r"\infty", "--")


# --- columns -------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column as LaTeX."""

    head: str
    cells: list[str]
    kind: str  # alignment, l or r
    width: int  # characters of the longest line, and of the gap behind it
    heights: list[int]  # lines of each cell


def _column(heading: str, cells: Sequence[str | Number], kind: str, longest: int) -> Column:
    """Format a column, its texts broken into lines of about `longest` characters."""
    lines = [
        _lines(cell, longest) if isinstance(cell, str) else [render(cell, PLAIN)] for cell in cells
    ]
    width = max(map(len, chain(_lines(heading, LONGEST_HEADING), *lines))) + 2
    written = [
        _broken(cell, longest) if isinstance(cell, str) else render(cell, LATEX) for cell in cells
    ]
    return Column(
        _broken(heading, LONGEST_HEADING, kind, "b"), written, kind, width, list(map(len, lines))
    )


def _panels(columns: Sequence[Column], key: int) -> list[list[Column]]:
    """Arrange columns in as few panels as can be read; the first `key` lead every panel."""
    panels, room = [list(columns[:key])], WIDEST - sum(column.width for column in columns[:key])
    left = room
    for column in columns[key:]:
        if column.width > left < room:
            panels.append(list(columns[:key]))
            left = room
        panels[-1].append(column)
        left -= column.width
    return panels


AT_MOST = (
    r"\ifdim\width>\linewidth\linewidth\else\width\fi"  # the natural width, or that of the text
)
SETUP = r"\centering\footnotesize\setlength{\tabcolsep}{3pt}"
NOTES = r"\par\smallskip\begin{{minipage}}{{\linewidth}}\scriptsize\emergencystretch=3em {}\end{{minipage}}"
FLOAT = (r"\begin{table*}[!htbp]", r"\end{table*}")
HERE = (  # captioned as a table, but not a float: sections of a report stay together
    r"\par\medskip\noindent\begin{minipage}{\linewidth}\makeatletter\def\@captype{table}\makeatother",
    r"\end{minipage}\par\medskip",
)


# --- the float -----------------------------------------------------------------------------------------------------


def to_latex(
    table: Table, origin: str = "", *, name: str = "", title: str = "", floating: bool = True
) -> str:
    r"""Format a ``table*`` with booktabs rules, a caption, a label, and what explains the table in
    notes below it.

    Rows of one setting follow its name.

    Args:
        origin: what the table was made from, for a comment.
        name: the label is ``tab:NAME``; without a name there is none.
        title: if the caption begins with it, the rest of the caption becomes the notes.
        floating: whether it is a float; otherwise it stands in place.
    """
    cells = [*zip(*table.rows)] or [()] * len(table.columns)
    kinds = ["r" if right else "l" for right in right_aligned(table)] or ["l"] * len(cells)
    first = int(table.columns[0] == "setting" and len(set(cells[0])) < len(table.rows))
    groups = list(map(str, cells[0])) if first else []
    longest = [*[LONGEST_NAME] * (first + 1), *[LONGEST_TEXT] * len(cells)]
    columns = [_column(*parts) for parts in zip(table.columns, cells, kinds, longest)][first:]
    panels = _panels(columns, _key(cells[first:], groups))
    pages = list(_pages(panels, len(table.rows)))
    comments = [f"needs \\usepackage{{{PACKAGES}}}", *origin.split("; ")]
    lines = [f"% {comment}" for comment in comments if comment and floating]
    frame = FLOAT if floating else HERE
    caption, notes = _caption(table.caption, title)
    for number, rows in enumerate(pages):
        above = rf"\caption{{{caption}}}" * bool(caption) + rf"\label{{tab:{name}}}" * bool(
            name and caption
        )
        above = (
            rf"\addtocounter{{table}}{{-1}}\caption{{{caption} (continued)}}" if number else above
        )
        tabulars = rf"{chr(10)}\par\medskip{chr(10)}".join(
            _tabular(panel, groups, rows) for panel in panels
        )
        below = [NOTES.format(notes)] if notes and rows == pages[-1] else []
        flush = [r"\clearpage"] * (floating and number % HELD == HELD - 1)
        lines += [frame[0], rf"{above}\medskip", SETUP, tabulars, *below, frame[1], *flush]
    return "\n".join([*lines, ""])


def _caption(text: str, title: str) -> tuple[str, str]:
    """Return caption and notes."""
    text, title = one_line(text), one_line(title)
    if title and text.startswith(f"{title}. "):
        return escape_latex(f"{title}."), escape_latex(text.removeprefix(f"{title}. "))
    return escape_latex(text), ""


def _key(columns: Sequence[Sequence[str | Number]], groups: Sequence[str]) -> int:
    """Return how many of the first columns distinguish the rows; one, if all of them do not."""
    names = groups or [""] * len(columns[0])
    counts = (
        count
        for count in range(1, len(columns))
        if len(set(zip(names, *columns[:count]))) == len(names)
    )
    return next(counts, 1)


def _pages(panels: Sequence[Sequence[Column]], rows: int) -> Iterator[list[int]]:
    """Divide the rows into pages of at most `HIGHEST` lines."""
    page: list[int] = []
    left = room = HIGHEST - 4 * len(panels)
    for row in range(rows):
        height = sum(max(column.heights[row] for column in panel) for panel in panels)
        if page and height > left:
            yield page
            page, left = [], room
        page.append(row)
        left -= height
    yield page


def _tabular(panel: Sequence[Column], groups: Sequence[str], rows: Sequence[int]) -> str:
    """Return a panel, scaled down to the width of the text where it is wider."""
    kinds = "".join(column.kind for column in panel)
    lines = [r"\toprule", " & ".join(column.head for column in panel) + r" \\", r"\midrule"]
    for place, row in enumerate(rows):
        if groups and (not place or groups[row] != groups[rows[place - 1]]):
            name = (
                rf"\multicolumn{{{len(panel)}}}{{@{{}}l}}{{\emph{{{escape_latex(groups[row])}}}}}"
            )
            lines.append((r"\addlinespace " if place else "") + name + r" \\*")
        lines.append(" & ".join(column.cells[row] for column in panel) + r" \\")
    begin = rf"\resizebox{{{AT_MOST}}}{{!}}{{\begin{{tabular}}{{@{{}}{kinds}@{{}}}}"
    return "\n".join([begin, *lines, r"\bottomrule", r"\end{tabular}}"])


# --- the report ------------------------------------------------------------------------------------------------------


def document_to_latex(document: Document) -> str:
    r"""Format as a ``\subsection*`` to ``\input``, its tables with labels ``tab:LABEL-...``."""
    lines = [
        rf"% needs \usepackage{{{PACKAGES}}}",
        rf"\subsection*{{{_breakable(document.title)}}}",
    ]
    lines += [_breakable(capital(document.lead))] if document.lead else []
    for section in document.sections:
        lines += [rf"\subsubsection*{{{section.heading}}}"] if section.heading else []
        entries = [
            *map(_latex_entry, section.entries),
            *(rf"\item {_breakable(item)}" for item in section.items),
        ]
        lines += [r"\begin{itemize}\raggedright", *entries, r"\end{itemize}"] if entries else []
        for name, table in section.tables.items():
            lines.append(to_latex(table, name=slug(document.label, name), floating=False))
        lines += [_breakable(section.text)] if section.text else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _latex_entry(entry: Entry) -> str:
    formula = (
        f"${entry.latex}$ "
        if entry.latex
        else f"{_breakable(entry.formula)} "
        if entry.formula
        else ""
    )
    return rf"\item \textbf{{{escape_latex(entry.lead)}}} {formula}{_breakable(entry.text)}"


def _breakable(text: str) -> str:
    """Escape a text whose paths, digests and names of options may be broken into lines."""
    return re.sub(r"(/|\\_|=|\+)(?=[\w\\])", r"\1\\allowbreak{}", escape_latex(text))
