"""A report as a value, and its text: plain and markdown; LaTeX has its own module. Pure functions."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import NamedTuple

from fa_audit.documents import formats
from fa_audit.documents.formats import Table, escape_block, escape_markdown

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
    """A part of a document: heading, entries, sentences, tables (by the end of their label),
    explanation.
    """

    heading: str = ""
    entries: tuple[Entry, ...] = ()
    items: tuple[str, ...] = ()
    tables: dict[str, Table] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True)
class Document:
    """A title, a leading sentence with the result, sections, and a prefix for labels of tables."""

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
        if table.caption:
            lines.append(_wrapped(table.caption, "  "))
        lines.append(textwrap.indent(formats.to_text(table).rstrip("\n"), "  "))
    if section.text:
        lines.append(_wrapped(section.text, "  "))
    return "\n".join(lines)


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
        entries = [_markdown_entry(entry) for entry in section.entries]
        entries += [f"- {escape_block(item)}" for item in section.items]
        heading = f"### {section.heading}" if section.heading else ""
        tables = [formats.to_markdown(table).strip() for table in section.tables.values()]
        blocks += [heading, "\n".join(entries), *tables, escape_block(section.text)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _markdown_entry(entry: Entry) -> str:
    formula = f"`{entry.formula}` " if entry.formula else ""
    return f"- **{entry.lead}** {formula}{escape_markdown(entry.text)}"


def capital(text: str) -> str:
    """Capitalise the first letter of a sentence."""
    return text[:1].upper() + text[1:]
