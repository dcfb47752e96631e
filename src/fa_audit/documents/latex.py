r"""Format a table and a report as LaTeX, by pure functions.

The document needs ``\usepackage{booktabs,graphicx}``. A table that is wider than the text is scaled
down to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fa_audit.documents.document import Document, capital
from fa_audit.documents.formats import Dialect, Table, one_line, rendered, right_aligned

_NEEDS = r"% needs \usepackage{booktabs,graphicx}"
_SENTENCE_END = re.compile(r"(?<!\bvs)(?<!\be\.g)(?<!\bi\.e)\. ")  # no abbreviation's end
LONG = 40  # a column breaks into lines if one of its texts has more characters
_SPECIAL = str.maketrans(
    {character: rf"\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"[": "{[}", "*": "{*}"}  # after a line break, LaTeX would read them as options
)
SYMBOLS = {
    ">=": r"\ge", "<=": r"\le", "≥": r"\ge", "≤": r"\le", "±": r"\pm", "×": r"\times", "−": "-",  # noqa: RUF001
    "≈": r"\approx", "→": r"\to", "∞": r"\infty", "‖": r"\|", "·": r"\cdot", "log10": r"\log_{10}",
}  # fmt: skip
# Set as mathematics: norms, powers of ten, minus signs before digits, symbols.
_MATHEMATICS = re.compile(
    r"(\|\|\w+(?:\+1)?\|\|"
    r"|(?<![.\w])\d+(?:\.\d+)?e[+-]?\d{1,3}(?!\w)|(?<=penalty)\d+(?:\.\d+)?e[+-]?\d{1,3}(?!\w)"
    rf"|(?<![^\s(\[])-(?=\d)|{'|'.join(map(re.escape, SYMBOLS))})"
)


def escape_latex(text: str) -> str:
    """Escape LaTeX's special characters; norms, powers of ten, minus signs and relations become
    mathematics.

    Characters of other scripts pass as UTF-8. XeLaTeX and LuaLaTeX read them; pdfLaTeX reads those
    for which it has a font.

    >>> escape_latex("50% of ||g_L|| >= 1e-7")
    '50\\\\% of $\\\\|g_L\\\\|$ $\\\\ge$ $10^{-7}$'
    """
    # The parts alternate: plain text, then a match of the pattern.
    parts = _MATHEMATICS.split(one_line(text))
    parts[::2] = [part.translate(_SPECIAL) for part in parts[::2]]
    parts[1::2] = [f"${_mathematics(part)}$" for part in parts[1::2]]
    return "".join(parts)


def _mathematics(text: str) -> str:
    if text.startswith("||"):
        return r"\|" + re.sub(r"_(\w\+1)", r"_{\1}", text.strip("|")) + r"\|"
    if text[0].isdigit():
        mantissa, exponent = text.split("e")
        factor = "" if mantissa == "1" else rf"{mantissa}\times"
        return f"{factor}10^{{{int(exponent)}}}"
    return SYMBOLS.get(text, text)


_LATEX = Dialect(escape_latex, "${}$", r" \pm ", r"{}\times10^{{{}}}", r"\infty", "--")


# A table wider than the text is scaled down; other tables keep their width.
_BEGIN = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{\begin{tabular}"


def to_latex(table: Table) -> str:
    r"""Format a ``table`` with booktabs rules, a caption, a label, and notes below it.

    The first sentence of ``table.caption`` becomes the LaTeX caption, the others become the notes.
    The label is ``tab:NAME``; the origin is a comment.
    """
    title, *notes = _SENTENCE_END.split(one_line(table.caption), maxsplit=1)
    lines = [f"% {comment}" for comment in table.origin.split("; ") if comment]
    lines += [_NEEDS, r"\begin{table}[htbp]", r"\centering\small"]
    if title:
        caption = escape_latex(title + "." * len(notes))
        label = rf"\label{{tab:{table.name}}}" if table.name else ""
        lines.append(rf"\caption{{{caption}}}{label}")
    kinds = ""
    for index, right in enumerate(right_aligned(table)):
        cells = [row[index] for row in table.rows]
        longest = max((len(cell) for cell in cells if isinstance(cell, str)), default=0)
        kinds += r"p{5cm}" if longest > LONG else "lr"[right]
    lines += [rf"{_BEGIN}{{@{{}}{kinds}@{{}}}}", r"\toprule"]
    header, *body = [map(escape_latex, table.columns), *rendered(table, _LATEX)]
    lines += [_row(header), r"\midrule", *map(_row, body), r"\bottomrule", r"\end{tabular}}"]
    for text in notes:
        lines.append(rf"\par\smallskip\parbox{{\linewidth}}{{\footnotesize {escape_latex(text)}}}")
    return "\n".join([*lines, r"\end{table}", ""])


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def document_to_latex(document: Document) -> str:
    r"""Format a document as a ``\subsection*`` for ``\input``."""
    lines = [
        _NEEDS,
        rf"\subsection*{{{_breakable(document.title)}}}",
        _breakable(capital(document.lead)),
    ]
    for section in document.sections:
        if section.heading:
            lines.append(rf"\subsubsection*{{{section.heading}}}")
        entries = []
        for entry in section.entries:
            formula = f"${entry.latex}$" if entry.latex else _breakable(entry.formula)
            lead = rf"\item \textbf{{{escape_latex(entry.term)}:}}"
            entries.append(" ".join(filter(None, (lead, formula, _breakable(entry.text)))))
        entries += [rf"\item {_breakable(item)}" for item in section.items]
        if entries:
            lines += [r"\begin{itemize}\raggedright", *entries, r"\end{itemize}"]
        lines += map(to_latex, section.tables)
        lines.append(_breakable(section.text))
    return "\n".join(filter(None, lines)) + "\n"


def _breakable(text: str) -> str:
    """Escape a text, and allow line breaks in its paths and names of options."""
    return re.sub(r"(/|\\_|=|\+)(?=[\w\\])", r"\1\\allowbreak{}", escape_latex(text))
