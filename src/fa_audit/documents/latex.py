r"""A table and a report as LaTeX. Pure functions.

The document needs ``\usepackage{booktabs,graphicx}``. A table that is wider than the text is scaled
down to it.
"""

from __future__ import annotations

import re
from html.entities import codepoint2name

from fa_audit.documents.document import Document, Entry, capital
from fa_audit.documents.formats import Dialect, Table, one_line, render, right_aligned

PACKAGES = "booktabs,graphicx"
LONG = 40  # characters of a text from which its column breaks into lines
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
# Norms, powers of ten, minus signs before digits, symbols.
MATHEMATICS = re.compile(
    r"(\|\|\w+(?:\+1)?\|\|"
    r"|(?<![.\w])\d+(?:\.\d+)?e[+-]?\d{1,3}(?!\w)|(?<=penalty)\d+(?:\.\d+)?e[+-]?\d{1,3}(?!\w)"
    rf"|(?<![^\s(\[])-(?=\d)|{'|'.join(map(re.escape, SYMBOLS))})"
)


def escape_latex(text: str) -> str:
    """Escape LaTeX's special characters; write norms, powers of ten, minus signs, relations and
    Greek as mathematics.

    Characters of other scripts pass as UTF-8, which XeLaTeX and LuaLaTeX read, and pdfLaTeX where
    it has a font.

    >>> escape_latex("50% of ||g_L|| >= 1e-7")
    '50\\\\% of $\\\\|g_L\\\\|$ $\\\\ge$ $10^{-7}$'
    """
    parts = MATHEMATICS.split(one_line(text))
    parts[::2] = [part.translate(SPECIAL) for part in parts[::2]]
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


LATEX = Dialect(escape_latex, "${}$", r" \pm ", r"{}\times10^{{{}}}", r"\infty", "--")


def slug(*parts: str) -> str:
    """Join the letters and digits of a label's parts by hyphens.

    >>> slug("audit", "dfa+penalty1e-2 in main", "seeds")
    'audit-dfa-penalty1e-2-in-main-seeds'
    """
    return "-".join(re.sub(r"[^A-Za-z0-9]+", "-", part).strip("-") for part in parts if part)


# The natural width, or that of the text where it is less.
BEGIN = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{\begin{tabular}"


def to_latex(table: Table, origin: str = "", *, name: str = "", title: str = "") -> str:
    r"""Format a ``table`` with booktabs rules, a caption, a label, and notes below it.

    Args:
        origin: what the table was made from, for a comment.
        name: the label is ``tab:NAME``; without a name there is none.
        title: if the caption begins with it, the rest of the caption becomes the notes.
    """
    caption, title = one_line(table.caption), one_line(title)
    notes = ""
    if title and caption.startswith(f"{title}. "):
        caption, notes = f"{title}.", caption.removeprefix(f"{title}. ")
    lines = [f"% {comment}" for comment in origin.split("; ") if comment]
    lines += [rf"% needs \usepackage{{{PACKAGES}}}", r"\begin{table}[htbp]", r"\centering\small"]
    if caption:
        label = rf"\label{{tab:{name}}}" if name else ""
        lines.append(rf"\caption{{{escape_latex(caption)}}}{label}")
    lines.append(_tabular(table))
    if notes:
        lines.append(rf"\par\smallskip\parbox{{\linewidth}}{{\footnotesize {escape_latex(notes)}}}")
    return "\n".join([*lines, r"\end{table}", ""])


def _tabular(table: Table) -> str:
    columns = list(zip(*table.rows)) or [()] * len(table.columns)
    kinds = ""
    for right, cells in zip(right_aligned(table), columns):
        longest = max((len(cell) for cell in cells if isinstance(cell, str)), default=0)
        kinds += r"p{5cm}" if longest > LONG else "lr"[right]
    lines = [rf"{BEGIN}{{@{{}}{kinds}@{{}}}}", r"\toprule"]
    lines += [" & ".join(map(escape_latex, table.columns)) + r" \\", r"\midrule"]
    for row in table.rows:
        lines.append(" & ".join(render(cell, LATEX) for cell in row) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}"])


def document_to_latex(document: Document) -> str:
    r"""Format as a ``\subsection*`` to ``\input``, its tables with labels ``tab:LABEL-...``."""
    lines = [
        rf"% needs \usepackage{{{PACKAGES}}}",
        rf"\subsection*{{{_breakable(document.title)}}}",
        _breakable(capital(document.lead)),
    ]
    for section in document.sections:
        if section.heading:
            lines.append(rf"\subsubsection*{{{section.heading}}}")
        entries = [_latex_entry(entry) for entry in section.entries]
        entries += [rf"\item {_breakable(item)}" for item in section.items]
        if entries:
            lines += [r"\begin{itemize}\raggedright", *entries, r"\end{itemize}"]
        for name, table in section.tables.items():
            lines.append(to_latex(table, name=slug(document.label, name)))
        lines.append(_breakable(section.text))
    return "\n".join(filter(None, lines)) + "\n"


def _latex_entry(entry: Entry) -> str:
    formula = f"${entry.latex}$" if entry.latex else _breakable(entry.formula)
    lead = rf"\item \textbf{{{escape_latex(entry.lead)}}}"
    return " ".join(filter(None, (lead, formula, _breakable(entry.text))))


def _breakable(text: str) -> str:
    """Escape a text whose paths, digests and names of options may be broken into lines."""
    return re.sub(r"(/|\\_|=|\+)(?=[\w\\])", r"\1\\allowbreak{}", escape_latex(text))
