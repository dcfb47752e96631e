"""The files of a table, built from audits."""

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
from fa_audit.results.tidy import Tidy, read_tidy


def write_table(
    entry: Mapping[str, Any],
    inputs: Sequence[str | Path],
    tables: Sequence[str | Path],
    origin_file: str | Path | None = None,
    tidy: Tidy | None = None,
) -> None:
    """Build one table in every format, and write where it comes from; arguments as of
    `write_figure`.

    The endings .csv, .md, .tex and .html choose the format; in LaTeX the label is the file's name.

    Raises:
        AuditError: a file is not a table.
    """
    tidy = tidy or read_tidy(inputs, entry.get("runs", ()))
    origin = origin_of(entry, tidy.runs["digest"].dropna(), inputs)
    words = {"title": entry["title"], "labels": entry["labels"]}
    table = call("table", TABLES, entry["kind"], Table, tidy, **words)
    formats = {".csv": to_csv, ".md": to_markdown, ".html": to_html}
    for path in map(Path, tables):
        if path.suffix == ".tex":
            text = to_latex(table, str(origin), name=path.stem, title=entry["title"])
        else:
            text = formats[path.suffix](table)
        write_text(path, text)
    if origin_file:
        write_json(origin_file, origin.to_dict())
