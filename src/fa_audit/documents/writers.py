"""The formats of tables and documents. To add a format, write a function and one line here."""

from __future__ import annotations

from collections.abc import Callable

from fa_audit.documents import document, formats, latex
from fa_audit.documents.document import Document
from fa_audit.documents.formats import Table

# Ending of a file -> the function that formats a table for it. The tables of a configuration are
# written in all these formats.
TABLES: dict[str, Callable[[Table], str]] = {
    "csv": formats.to_csv,
    "md": formats.to_markdown,
    "tex": latex.to_latex,
    "html": formats.to_html,
}
# Value of `fa-audit report --format` -> the function that formats a report.
DOCUMENTS: dict[str, Callable[[Document], str]] = {
    "markdown": document.to_markdown,
    "latex": latex.document_to_latex,
}
