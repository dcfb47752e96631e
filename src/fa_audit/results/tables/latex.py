r"""A table as LaTeX: a float with a caption, a label and notes, within the text width of the document. Pure functions.

The document needs ``\usepackage{booktabs,tabularx}``. Widths are estimated for the text of NeurIPS, 5.5 inches, in
Computer Modern, which is wider than Times: a table whose columns do not fit in footnotesize has small type; one that
does not fit then either has its columns in two or more panels, one below the other; one that is longer than a page goes
on in a second float. Texts of a column that would be too wide are broken into lines.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from fa_audit.results.tables.formats import PLAIN, Dialect, Number, Table, render, right_aligned

PACKAGES = "booktabs,tabularx"
TEXT_WIDTH, TEXT_HEIGHT = 390.0, 530.0  # points: 5.5 inches are 397; a page without caption and notes
LONGEST_HEADING = 9  # characters of a line of a heading
LONGEST_NAME, LONGEST_TEXT = 26, 18  # digits: a longer text, in the first column and elsewhere, may be broken
PREFERRED = 44  # digits: longer texts do not ask for a wider column
# Widths of characters in Computer Modern, in digits.
NARROW, WIDE, UPPER, LOWER = dict.fromkeys("iljft.,:;()[]|!' ", 0.6), dict.fromkeys("mwMW+-−±<>=%", 1.55), 1.4, 0.97  # noqa: RUF001
POWER = "+10"  # about as wide as the cross and the ten of a power of ten


@dataclass(frozen=True)
class Type:
    """A size of type: its command, and in points the width of a digit, a line's height, the gap between columns."""

    command: str
    digit: float
    line: float
    gap: float


SIZES = (Type("footnotesize", 4.25, 9.5, 7), Type("scriptsize", 4.0, 8.2, 5))


# --- text ----------------------------------------------------------------------------------------------------------

SPECIAL = str.maketrans(
    {character: rf"\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"[": "{[}", "*": "{*}"}  # which a line break before them would take for its own
)
LETTERS = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi"
    " omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
SYMBOLS = {letter: rf"\{name}" for letter, name in zip(LETTERS, NAMES.split(), strict=True)} | {
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
    """Escape LaTeX's special characters; write norms, powers of ten, minus signs, relations and Greek as mathematics.

    Characters of other scripts pass as UTF-8, which XeLaTeX and LuaLaTeX read, and pdfLaTeX where it has a font.

    >>> escape_latex("50% of ||g_L|| >= 1e-7")
    '50\\\\% of $\\\\|g_L\\\\|$ $\\\\ge$ $10^{-7}$'
    """
    text, written, end = " ".join(text.split()), [], 0
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
    """Return parts of a label, joined by hyphens: their letters and digits.

    >>> slug("audit", "dfa+penalty1e-2 in main", "seeds")
    'audit-dfa-penalty1e-2-in-main-seeds'
    """
    return "-".join(re.sub(r"[^A-Za-z0-9]+", "-", part).strip("-") for part in parts)


def _broken(text: str, longest: int, side: str = "l", base: str = "t") -> str:
    """Break a text into lines of about `longest` characters; `base`, t or b, is the line that stands on the row's."""
    parts = (textwrap.wrap(part, longest, break_long_words=False, break_on_hyphens=False) for part in text.splitlines())
    lines = [escape_latex(line) for part in parts for line in part]
    if len(lines) < 2:
        return "".join(lines)
    return rf"\begin{{tabular}}[{base}]{{@{{}}{side}@{{}}}}" + r"\\".join(lines) + r"\end{tabular}"


LATEX = Dialect(lambda text: _broken(text, max(1, len(text))), "${}$", r" \pm ", r"{}\times10^{{{}}}", r"\infty", "--")


def _paragraph(text: str) -> str:
    """Return a text of a column whose lines LaTeX breaks, also behind a + inside a word."""
    return re.sub(r"(?<=[\w$])\+(?=\w)", r"+\\allowbreak{}", r"\newline ".join(map(escape_latex, text.splitlines())))


# --- columns -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column: its heading, its cells, and how wide it is, in digits."""

    heading: str
    cells: tuple[str | Number, ...]
    right: bool
    longest: float = LONGEST_TEXT

    @property
    def texts(self) -> list[str]:
        """Return the printed lines of all cells."""
        return [line for cell in self.cells for line in _lines(cell)]

    @property
    def least(self) -> float:
        """Return the width of what cannot be broken: headings, and all words or numbers."""
        heading = textwrap.wrap(self.heading, LONGEST_HEADING, break_long_words=False, break_on_hyphens=False)
        words = [*heading, *(word for text in self.texts for word in ([text] if self.right else _words(text)))]
        return max(map(width, words), default=1) + 0.4

    @property
    def natural(self) -> float:
        """Return the width without any line broken."""
        return max([self.least, *map(width, self.texts)])

    @property
    def preferred(self) -> float:
        """Return a width in which most lines are not broken: one long name does not make a wide column."""
        usual = 1.3 * sum(map(width, self.texts)) / max(1, len(self.texts))
        return min(self.natural, PREFERRED, max(self.least, usual))

    @property
    def is_text(self) -> bool:
        """Return whether its lines may be broken."""
        return not self.right and (self.natural > self.longest or any("\n" in str(cell) for cell in self.cells))


def _lines(cell: str | Number) -> list[str]:
    """Return the lines of a cell, about as long as LaTeX prints them."""
    if isinstance(cell, str):
        return cell.splitlines() or [""]
    return [re.sub(r"(?<=\d)e(?=-?\d)", POWER, render(cell, PLAIN))]


def width(text: str) -> float:
    """Return about how wide a text is, in digits.

    >>> width("0123"), round(width("PASS"), 1)
    (4.0, 5.6)
    """
    other = (1.0 if c.isdigit() else UPPER if c.isupper() else LOWER for c in text if c not in NARROW and c not in WIDE)
    return sum(other) + sum(NARROW.get(c, 0) + WIDE.get(c, 0) for c in text)


def _words(text: str) -> list[str]:
    return re.split(r"\s+|(?<=\w\+)(?=\w)", text)


@dataclass(frozen=True)
class Panel:
    """Columns side by side, and where they do not fit unbroken, the widths of their texts in digits."""

    columns: tuple[Column, ...]
    size: Type
    widths: tuple[float | None, ...]  # None: as wide as its widest line

    @property
    def heights(self) -> list[int]:
        """Return the number of lines of every row."""
        return [max(map(self._height, cells, self.widths)) for cells in zip(*(c.cells for c in self.columns))]

    @staticmethod
    def _height(cell: str | Number, share: float | None) -> int:
        lines = _lines(cell)
        return len(lines) if share is None else sum(max(1, math.ceil(width(line) / share)) for line in lines)


def _panels(columns: Sequence[Column], key: int) -> list[Panel]:
    """Arrange columns in as large a type and as few panels as fit the text width; the first `key` lead every panel."""
    for size, narrowest in ((SIZES[0], 24), (SIZES[1], 24), (SIZES[1], 15)):
        if _needed(columns, size, narrowest) <= TEXT_WIDTH:
            return [_panel(columns, size)]
    for count in range(1, len(columns) - key):
        if divided := _divided(columns[:key], columns[key:], count):
            break
    else:
        divided = [[column] for column in columns[key:]]
    parts = [[*columns[:key], *group] for group in divided]
    size = SIZES[0] if all(_needed(part, SIZES[0], 24) <= TEXT_WIDTH for part in parts) else SIZES[1]
    return [_panel(part, size) for part in parts]


def _divided(key: Sequence[Column], others: Sequence[Column], count: int) -> list[Sequence[Column]]:
    """Divide columns at `count` places into groups that fit, in their order, the widest as narrow as it can be."""
    places = ((0, *inner, len(others)) for inner in combinations(range(1, len(others)), count))
    found = [[others[start:end] for start, end in pairwise(place)] for place in places]
    fitting = [groups for groups in found if all(_needed([*key, *g], SIZES[1], 15) <= TEXT_WIDTH for g in groups)]
    return min(fitting, key=lambda groups: max(_needed([*key, *g], SIZES[1], PREFERRED) for g in groups), default=[])


def _needed(columns: Sequence[Column], size: Type, narrowest: int) -> float:
    """Return the points that columns need if texts are broken into lines of at least so many digits."""
    widths = (max(c.least, min(c.natural, narrowest)) if c.is_text else c.natural for c in columns)
    return size.digit * sum(widths) + size.gap * (len(columns) - 1)


def _panel(columns: Sequence[Column], size: Type) -> Panel:
    """Share the text width among the columns."""
    if _needed(columns, size, 10**6) <= TEXT_WIDTH:
        return Panel(tuple(columns), size, (None,) * len(columns))
    texts = [column for column in columns if column.is_text]
    others = sum(column.natural for column in columns if not column.is_text)
    room = (TEXT_WIDTH - size.gap * (len(columns) - 1)) / size.digit - others
    shares = _shares({i: (c.least, c.preferred) for i, c in enumerate(texts)}, room)
    found = iter([shares[i] for i in range(len(texts))])
    return Panel(tuple(columns), size, tuple(next(found) if column.is_text else None for column in columns))


def _shares(wishes: dict[int, tuple[float, float]], room: float) -> dict[int, float]:
    """Divide the room in proportion to what is preferred, none below its least: ``i -> (least, preferred)``."""
    total = sum(preferred for _, preferred in wishes.values())
    tight = {i: float(least) for i, (least, preferred) in wishes.items() if preferred * room < least * total}
    if not tight or len(tight) == len(wishes):
        return {i: preferred * room / total for i, (_, preferred) in wishes.items()}
    rest = {i: wish for i, wish in wishes.items() if i not in tight}
    return tight | _shares(rest, room - sum(tight.values()))


FLOAT = (r"\begin{table*}[!htbp]", r"\end{table*}")
HERE = (  # with a caption of a table, though no float: sections of a report stay together
    r"\par\medskip\noindent\begin{minipage}{\linewidth}\makeatletter\def\@captype{table}\makeatother",
    r"\end{minipage}\par\medskip",
)


# --- the float -----------------------------------------------------------------------------------------------------


def to_latex(table: Table, origin: str = "", *, name: str = "", title: str = "", floating: bool = True) -> str:
    r"""Format a ``table*`` with booktabs rules, a caption, a label, and what explains the table in notes below it.

    Rows of one setting stand under its name.

    Args:
        origin: what the table was made from, for a comment.
        name: the label is ``tab:NAME``; without a name there is none.
        title: where the caption begins with it, the rest of the caption are the notes.
        floating: in a float; otherwise where it stands.
    """
    cells = [*zip(*table.rows)] or [()] * len(table.columns)
    columns = [Column(*parts) for parts in zip(table.columns, cells, right_aligned(table) or [False] * len(cells))]
    groups: tuple[str, ...] = ()
    if table.columns[0] == "setting" and len(set(cells[0])) < len(table.rows):
        groups, columns = tuple(map(str, cells[0])), columns[1:]
    columns[0] = replace(columns[0], longest=LONGEST_NAME)
    panels = _panels(columns, _key(columns, groups))
    pages = _pages(panels, groups)
    comments = [f"needs \\usepackage{{{PACKAGES}}}", *origin.split("; ")]
    lines = [f"% {comment}" for comment in comments if comment and floating]
    frame = FLOAT if floating else HERE
    caption, notes = _caption(table.caption, title)
    for number, rows in enumerate(pages):
        first = rf"\caption{{{caption}}}" + rf"\label{{tab:{name}}}" * bool(name)
        heading = rf"\addtocounter{{table}}{{-1}}\caption{{{caption} (continued)}}" if number else first
        body = _body(panels, groups, rows, heading, notes if rows == pages[-1] else "")
        lines += [frame[0], *body, frame[1]]
    return "\n".join([*lines, ""])


def _caption(text: str, title: str) -> tuple[str, str]:
    """Return caption and notes."""
    text, title = " ".join(text.split()), " ".join(title.split())
    if title and text.startswith(f"{title}. "):
        return escape_latex(f"{title}."), escape_latex(text.removeprefix(f"{title}. "))
    return escape_latex(text), ""


def _key(columns: Sequence[Column], groups: Sequence[str]) -> int:
    """Return how many of the first columns tell the rows apart; one, if all of them do not."""
    names = groups or [""] * len(columns[0].cells)
    for count in range(1, len(columns)):
        if len(set(zip(names, *(column.cells for column in columns[:count])))) == len(names):
            return count
    return 1


def _pages(panels: Sequence[Panel], groups: Sequence[str]) -> list[list[int]]:
    """Divide the rows into pages of about equal height."""
    heights = [sum(panel.size.line * lines for panel, lines in zip(panels, row)) for row in
               zip(*(panel.heights for panel in panels))]  # fmt: skip
    starts = [name not in groups[:row] for row, name in enumerate(groups)] or [False] * len(heights)
    heights = [height + len(panels) * 14 * start for height, start in zip(heights, starts)]
    count = math.ceil(sum(heights) / (TEXT_HEIGHT - 40 * len(panels))) or 1
    pages: list[list[int]] = [[] for _ in range(count)]
    for row in range(len(heights)):
        above = sum(heights[:row]) + heights[row] / 2
        pages[min(count - 1, int(above * count / sum(heights)))].append(row)
    return [rows for rows in pages if rows] or [[]]


def _body(panels: Sequence[Panel], groups: Sequence[str], rows: Sequence[int], heading: str, notes: str) -> list[str]:
    """Return the lines of a table: what stands above it, its panels, notes."""
    size = panels[0].size
    bodies = [_tabular(panel, groups, rows, stretched=len(panels) > 1) for panel in panels]
    between = [[], *[[r"\par\medskip"]] * (len(bodies) - 1)]
    return [
        rf"{heading}\medskip",
        rf"\centering\{size.command}\setlength{{\tabcolsep}}{{{size.gap / 2:g}pt}}",
        *(line for gap, body in zip(between, bodies) for line in (*gap, *body)),
        *([rf"\par\smallskip\begin{{minipage}}{{\linewidth}}\scriptsize\emergencystretch=3em {notes}\end{{minipage}}"]
          if notes else []),
    ]  # fmt: skip


def _tabular(panel: Panel, groups: Sequence[str], rows: Sequence[int], *, stretched: bool) -> list[str]:
    """Return the lines of a tabular; a tabularx where texts have lines to be broken, as wide as the text.

    Args:
        stretched: as wide as the text in any case.
    """
    widths = [width for width in panel.widths if width is not None]
    kinds = "".join(_kind(column, width, widths) for column, width in zip(panel.columns, panel.widths))
    environment = "tabularx" if widths else "tabular*" if stretched else "tabular"
    stretch = r"\extracolsep{\fill}" * (environment == "tabular*")
    begin = (r"{\linewidth}" if environment != "tabular" else "") + f"{{@{{{stretch}}}{kinds}@{{}}}}"
    headings = (_broken(column.heading, LONGEST_HEADING, "r" if column.right else "l", "b") for column in panel.columns)
    lines = [r"\toprule", " & ".join(headings) + r" \\", r"\midrule"]
    for place, row in enumerate(rows):
        if groups and (not place or groups[row] != groups[rows[place - 1]]):
            above = r"\addlinespace " * bool(place)
            name = rf"\emph{{{escape_latex(groups[row])}}}"
            lines.append(rf"{above}\multicolumn{{{len(panel.columns)}}}{{@{{}}l}}{{{name}}} \\*")
        lines.append(" & ".join(_cell(column.cells[row], width) for column, width in zip(panel.columns, panel.widths))
                     + r" \\")  # fmt: skip
    return [rf"\begin{{{environment}}}{begin}", *lines, r"\bottomrule", rf"\end{{{environment}}}"]


def _kind(column: Column, width: float | None, widths: Sequence[float]) -> str:
    """Return the letter of a column; one whose lines are broken has its share of the width."""
    if width is None:
        return "r" if column.right else "l"
    share = width * len(widths) / sum(widths)
    return rf">{{\hsize={share:.3f}\hsize\linewidth=\hsize\raggedright\arraybackslash}}X"


def _cell(cell: str | Number, width: float | None) -> str:
    if width is not None and isinstance(cell, str):
        return _paragraph(cell)
    return render(cell, LATEX)
