"""A report as a value, and its text: plain, markdown, HTML; LaTeX has its own module. Pure
functions.
"""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass, field
from typing import NamedTuple

from fa_audit.documents import formats
from fa_audit.documents.formats import PLAIN, Table, escape_block, escape_markdown, render

WIDTH = 80  # columns of plain text
NBSP = "\N{NO-BREAK SPACE}"


class Entry(NamedTuple):
    """A term and its text, and a formula before the text, plain and for LaTeX."""

    term: str
    text: str
    formula: str = ""
    latex: str = ""

    @property
    def lead(self) -> str:
        """Return the term as printed before its text."""
        return self.term if self.term.endswith("?") else f"{self.term}:"

    @property
    def plain(self) -> str:
        """Return formula and text."""
        return f"{self.formula} {self.text}".strip()


@dataclass(frozen=True)
class Section:
    """A part of a document: heading, entries, sentences, tables by the ends of their labels,
    explanation.
    """

    heading: str = ""
    entries: tuple[Entry, ...] = ()
    items: tuple[str, ...] = ()
    tables: dict[str, Table] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True)
class Document:
    """A title, sections, a leading sentence with the most important fact, and a prefix of the
    tables' labels.
    """

    title: str
    sections: tuple[Section, ...]
    lead: str = ""
    label: str = ""


def to_text(document: Document) -> str:
    """Format as plain text, its sentences wrapped at 80 columns."""
    first = f"{document.title}: {document.lead}" if document.lead else document.title
    return "\n\n".join([_wrapped(first), *map(_section_text, document.sections)])


def _section_text(section: Section) -> str:
    lines = [section.heading] if section.heading else []
    width = max((len(entry.term) for entry in section.entries), default=0)
    lines += [_wrapped(entry.plain, f"  {entry.term:<{width}}  ") for entry in section.entries]
    lines += [_wrapped(item, "  - ") for item in section.items]
    for table in section.tables.values():
        lines += [_wrapped(table.caption, "  ")] if table.caption else []
        rows = [table.columns, *([render(cell, PLAIN) for cell in row] for row in table.rows)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines += [("  " + "  ".join(map(str.rjust, row, widths))).rstrip() for row in rows]
    return "\n".join(lines + ([_wrapped(section.text, "  ")] if section.text else []))


def _wrapped(text: str, start: str = "") -> str:
    rest = " " * len(start)
    filled = textwrap.fill(
        text, WIDTH, initial_indent=start, subsequent_indent=rest, break_on_hyphens=False
    )
    return filled.replace(NBSP, " ")


def to_markdown(document: Document) -> str:
    """Format as a section in markdown."""
    blocks = [f"## {escape_markdown(document.title)}", escape_block(capital(document.lead))]
    for section in document.sections:
        entries = [
            *map(_markdown_entry, section.entries),
            *(f"- {escape_block(item)}" for item in section.items),
        ]
        tables = (formats.to_markdown(table).strip() for table in section.tables.values())
        heading = f"### {section.heading}" if section.heading else ""
        blocks += [heading, "\n".join(entries), *tables, escape_block(section.text)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _markdown_entry(entry: Entry) -> str:
    formula = f"`{entry.formula}` " if entry.formula else ""
    return f"- **{entry.lead}** {formula}{escape_markdown(entry.text)}"


def to_html(document: Document) -> str:
    """Format as HTML for notebooks, without colours of its own, so that it is readable on any
    background.
    """
    first = f"<p><b>{_escaped(capital(document.lead))}</b></p>" if document.lead else ""
    body = "".join(map(_section_html, document.sections))
    return f'<div style="max-width: 50em"><h3>{_escaped(document.title)}</h3>{first}{body}</div>'


def _section_html(section: Section) -> str:
    heading = f"<h4>{_escaped(section.heading)}</h4>" if section.heading else ""
    entries = "".join(_html_row((entry.term, entry.plain), "th", "td") for entry in section.entries)
    entries = f"<table>{entries}</table>" if entries else ""
    items = "".join(f"<li>{_escaped(item)}</li>" for item in section.items)
    tables = "".join(map(_html_table, section.tables.values()))
    text = f"<p>{_escaped(section.text)}</p>" if section.text else ""
    return heading + entries + tables + (f"<ul>{items}</ul>" if items else "") + text


def _html_table(table: Table) -> str:
    rows = "".join(
        _html_row(tuple(render(cell, PLAIN) for cell in row), "td", "td") for row in table.rows
    )
    caption = f"<caption>{_escaped(table.caption)}</caption>" if table.caption else ""
    return f"<table>{caption}{_html_row(table.columns, 'th', 'th')}{rows}</table>"


def _html_row(cells: tuple[str, ...], first: str, other: str) -> str:
    """Format a row, its border half transparent, which shows on light and dark backgrounds."""
    tags = (first, *[other] * len(cells))
    style = 'style="text-align: left; border-bottom: 1px solid #8888"'
    return f"<tr>{''.join(f'<{tag} {style}>{_escaped(cell)}</{tag}>' for tag, cell in zip(tags, cells))}</tr>"


def _escaped(text: str) -> str:
    return html.escape(text).replace(NBSP, " ")


def capital(text: str) -> str:
    """Return a sentence with a capital."""
    return text[:1].upper() + text[1:]
