"""The report of an audit: its result, as text and as a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fa_audit.audit.record import record_of
from fa_audit.audit.rendering import document
from fa_audit.audit.result import AuditResult
from fa_audit.documents.document import to_markdown, to_text


@dataclass(frozen=True)
class DiagnosticReport(AuditResult):
    """The result of an audit; `str()` is its text, and a notebook shows it as markdown."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types; NaN and infinities become the strings 'nan', 'inf',
        '-inf'.
        """
        return record_of(self)

    def __str__(self) -> str:
        return to_text(document(self))

    def to_markdown(self) -> str:
        """Return the report as a section in markdown."""
        return to_markdown(document(self))

    _repr_markdown_ = to_markdown
