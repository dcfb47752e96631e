"""Build a table from tidy tables into its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fa_audit.core.files import write_json, write_text
from fa_audit.core.origin import origin_of
from fa_audit.core.registry import call
from fa_audit.documents.formats import Table, to_csv, to_html, to_markdown
from fa_audit.documents.latex import to_latex
from fa_audit.results.tables import TABLES
from fa_audit.results.tidy import read_tidy


def write_table(
    entry: Mapping[str, Any], tidy_files: Sequence[str | Path], tables: Sequence[str | Path], origin_file: str | Path
) -> None:
    """Build one table in every format, and write where it comes from; arguments as of `write_figure`.

    Raises:
        AuditError: a file is not a table.
    """
    tidy = read_tidy(tidy_files, entry.get("runs", ()))
    origin = origin_of(entry, tidy.runs["digest"], tidy_files)
    table = call("table", TABLES, entry["kind"], Table, tidy, title=entry["title"], labels=entry["labels"])
    write_formats(table, tables, str(origin), entry["title"])
    write_json(origin_file, origin.to_dict())


def write_formats(table: Table, paths: Sequence[str | Path], origin: str, title: str = "") -> None:
    """Write a table to files whose endings, .csv, .md, .tex or .html, say how; in LaTeX labelled by the file's name."""
    formats = {".csv": to_csv, ".md": to_markdown, ".html": to_html}
    for path in map(Path, paths):
        latex = path.suffix == ".tex"
        text = to_latex(table, origin, name=path.stem, title=title) if latex else formats[path.suffix](table)
        write_text(path, text)
