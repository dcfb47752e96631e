"""Write the files of a table, built from audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fa_audit.core.files import write_json, write_text
from fa_audit.core.origin import origin_of
from fa_audit.core.registry import call
from fa_audit.documents import writers
from fa_audit.documents.formats import Table
from fa_audit.results.tables import TABLES
from fa_audit.results.tidy import Tidy


def write_table(
    entry: Mapping[str, Any],
    tidy: Tidy,
    inputs: Sequence[str | Path],
    tables: Sequence[str | Path],
    origin_file: str | Path | None = None,
) -> None:
    """Build one table and write it in every format, with a record of its code and inputs.

    The files' endings choose the formats, by `writers.TABLES`. The arguments are the same as for
    `write_figure`.

    Raises:
        AuditError: see `fa_audit.core.registry.call`.
    """
    origin = origin_of(entry, tidy.runs["digest"].dropna(), inputs)
    words = {"title": entry["title"], "labels": entry["labels"]}
    table = call("table", TABLES, entry["kind"], Table, tidy, **words)
    for path in map(Path, tables):
        named = replace(table, name=path.stem, origin=str(origin))
        write_text(path, writers.TABLES[path.suffix[1:]](named))
    if origin_file:
        write_json(origin_file, origin.to_dict())
