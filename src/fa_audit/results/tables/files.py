"""Build a table from tidy tables into its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fa_audit.core.files import write_json, write_text
from fa_audit.core.registry import call
from fa_audit.results.origin import origin_of
from fa_audit.results.tables import TABLES
from fa_audit.results.tables.formats import Table, to_csv, to_html, to_latex, to_markdown
from fa_audit.results.tidy import read_tidy


def write_table(
    entry: Mapping[str, Any], tidy_files: Sequence[str | Path], tables: Sequence[str | Path], origin_file: str | Path
) -> None:
    """Build one table in every format, and write where it comes from; arguments as of `write_figure`.

    Raises:
        AuditError: a file is no table.
    """
    tidy = read_tidy(tidy_files)
    origin = origin_of(entry, tidy.runs["digest"], tidy_files)
    table = call("table", TABLES, entry["kind"], Table, tidy, title=entry["title"], labels=entry["labels"])
    write_formats(table, tables, str(origin))
    write_json(origin_file, origin.to_dict())


def write_formats(table: Table, paths: Sequence[str | Path], origin: str) -> None:
    """Write a table to files whose endings, .csv, .md, .tex or .html, say how."""
    formats = {".csv": to_csv, ".md": to_markdown, ".tex": lambda table: to_latex(table, origin), ".html": to_html}
    for path in paths:
        write_text(path, formats[Path(path).suffix](table))
