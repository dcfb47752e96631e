"""The class of a report, and pure functions that format it as plain text and markdown.

`fa_audit.documents.latex` formats a report as LaTeX.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import NamedTuple

from fa_audit.documents import formats
from fa_audit.documents.formats import Table, escape_markdown

WIDTH = 80  # columns of plain text
NBSP = "\N{NO-BREAK SPACE}"


class Entry(NamedTuple):
    """A term with its text. A formula, plain and in LaTeX, may come before the text."""

    term: str
    text: str
    formula: str = ""
    latex: str = ""

    @property
    def plain(self) -> str:
        """Return formula and text."""
        return f"{self.formula} {self.text}".strip()


@dataclass(frozen=True)
class Section:
    """A part of a document, printed in the order of its fields.

    Attributes:
        items: sentences, printed as a list.
        text: an explanation, printed last.
    """

    heading: str = ""
    entries: tuple[Entry, ...] = ()
    items: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Document:
    """A title, sections, and a leading sentence with the result."""

    title: str
    sections: tuple[Section, ...]
    lead: str = ""


def to_text(document: Document) -> str:
    """Format as plain text, its sentences wrapped at 80 columns."""
    first = f"{document.title}: {document.lead}" if document.lead else document.title
    return "\n\n".join([_wrapped(first), *map(_section_text, document.sections)])


def _section_text(section: Section) -> str:
    lines = [section.heading] if section.heading else []
    width = max((len(entry.term) for entry in section.entries), default=0)
    lines += [_wrapped(entry.plain, f"  {entry.term:<{width}}  ") for entry in section.entries]
    lines += [_wrapped(item, "  - ") for item in section.items]
    for table in section.tables:
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
    blocks = [f"## {escape_markdown(document.title)}", escape_markdown(capital(document.lead))]
    for section in document.sections:
        if section.heading:
            blocks.append(f"### {section.heading}")
        items = []
        for entry in section.entries:
            formula = f"`{entry.formula}` " if entry.formula else ""
            items.append(f"- **{entry.term}:** {formula}{escape_markdown(entry.text)}")
        items += [f"- {escape_markdown(item)}" for item in section.items]
        blocks.append("\n".join(items))
        blocks += [formats.to_markdown(table).strip() for table in section.tables]
        blocks.append(escape_markdown(section.text))
    return "\n\n".join(filter(None, blocks)) + "\n"


def capital(text: str) -> str:
    """Capitalise the first letter of a sentence."""
    return text[:1].upper() + text[1:]
