"""Format the scorecard as CSV, markdown and HTML; made from published numbers, it is no kind of table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.core.files import write_text
from fa_audit.results.scorecard import summary_line
from fa_audit.results.tables import formats
from fa_audit.results.tables.formats import Table

COLUMNS = ("quantity", "run", "published", "reproduced", "95 % interval", "rule", "verdict", "note")


def write_scorecard(rows: pd.DataFrame, remark: str, paths: Iterable[str | Path]) -> None:
    """Write the scorecard to paths that end in .csv, .md and .html."""
    texts = {".csv": rows.to_csv(index=False), ".md": to_markdown(rows, remark), ".html": to_html(rows, remark)}
    for path in paths:
        write_text(path, texts[Path(path).suffix])


def to_markdown(rows: pd.DataFrame, remark: str) -> str:
    """Return the summary, a remark, and a table for every setting.

    Args:
        rows: as `fa_audit.results.scorecard.scorecard` makes them.
    """
    parts = [
        formats.to_markdown(Table(f"{setting}: {summary_line(group)}", COLUMNS, _rows(group), group))
        for setting, group in rows.groupby("setting", sort=False)
    ]
    head = f"{summary_line(rows)}.\n\n{formats.escape_markdown(remark)}\n"
    return "\n".join([head, *(f"## {part}" for part in parts)])


def to_html(rows: pd.DataFrame, remark: str) -> str:
    """Return a page with one table of everything, for the report."""
    cells = tuple((setting, *row) for setting, row in zip(rows["setting"], _rows(rows)))
    return formats.to_html(Table(f"{summary_line(rows)}. {remark}", ("setting", *COLUMNS), cells, rows))


def _rows(rows: pd.DataFrame) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(_cells(row)) for row in rows.to_dict("records"))


def _cells(row: dict[str, Any]) -> list[str]:
    layer = "" if pd.isna(row["layer"]) else f" (layer {row['layer']})"
    interval = "" if pd.isna(row["interval_low"]) else f"{row['interval_low']:.4g} to {row['interval_high']:.4g}"
    return [
        row["quantity"] + layer,
        row["run"],
        _mean(row["published"], row["published_deviation"], row["published_n"]),
        _mean(row["reproduced"], row["deviation"], row["n"]),
        *(interval, row["rule"], row["verdict"], row["note"]),
    ]


def _mean(value: Any, deviation: float | None, n: int) -> str:
    """Return a mean or a verdict with its n; nothing without a value."""
    if pd.isna(value):
        return ""
    spread = "" if pd.isna(deviation) else f" ± {deviation:.2g}"
    return f"{value if isinstance(value, str) else f'{value:.4g}'}{spread} (n = {n})"
