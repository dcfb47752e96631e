"""Texts of figures that read like a table: labels in lines, names of rows and columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from matplotlib.axes import Axes

LABEL_WIDTH, LINE = 24, 0.125  # characters of a row's label in one line; inches from line to line
FORMULA = r"\$[^$]*\$"  # stays in one piece


def wrap(label: str, width: int) -> str:
    """Break a label into lines of at most `width` characters where that is possible: at spaces,
    before +, after _.
    """
    parts: list[str] = []
    for word in re.findall(rf"\s*\+*\s*(?:{FORMULA}|[^\s+])+", label) or [label]:
        parts += (
            [word]
            if _length(word) <= width
            else re.findall(rf"(?:{FORMULA}|[^_])*_+|(?:{FORMULA}|[^_])+", word)
        )
    lines = [""]
    for part in parts:
        if lines[-1] and _length(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part if lines[-1] else part.lstrip()
    return "\n".join(line.rstrip() for line in lines)


def _length(text: str) -> int:
    """Return about how many characters a label shows."""
    return len(re.sub(r"\\[a-z]+", "x", re.sub(r"[{}$^]", "", text)))


def heights(labels: Sequence[str], *, lines: int) -> float:
    """Return the inches that the rows need together when a square has `lines` lines of text."""
    tallest = max([lines, *(wrap(label, LABEL_WIDTH).count("\n") + 1 for label in labels)])
    return len(labels) * (tallest * LINE + 0.1)


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Name the rows of a panel on the left, row 0 on top."""
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_yticks(range(len(names)), names, va="center")
    ax.tick_params(axis="y", length=0)


def name_columns(ax: Axes, names: Sequence[str]) -> None:
    """Name the columns of a panel without spines above it."""
    ax.set_xticks(range(len(names)), names)
    ax.tick_params(axis="x", length=0, top=False, bottom=False, labeltop=True, labelbottom=False)
    ax.spines[:].set_visible(False)
