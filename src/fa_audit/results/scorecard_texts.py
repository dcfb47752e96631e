"""Write a scorecard as text: the sum, the paper's claims, misses, every number; as CSV, markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.core.files import write_text
from fa_audit.experiments.published import COUNTED, REPEATS, UNINFORMATIVE, Published
from fa_audit.results.scorecard import IN_PART, NOT_REPRODUCED, SAME, claims, counted, sum_of
from fa_audit.results.tables import formats
from fa_audit.results.tables.formats import Table
from fa_audit.results.tidy import KEY, Tidy

CLAIMS = ("claim", "verdict", "its numbers")
BRIEF = ("setting", "quantity", "run", "published", "ours", "verdict")  # of the numbers under a claim, and of misses
HEADINGS = ("quantity", "run", "published", "ours", "95 % interval", "rule", "null", "counted", "verdict", "note")
UNCOUNTED = {UNINFORMATIVE: "{} that a null passes", REPEATS: "{} that repeat others"}


def short_sum(rows: pd.DataFrame) -> str:
    """Return how many of the informative numbers were reproduced, of those that were run."""
    found = sum_of(rows)
    if not found.run:
        return f"{found.absent} not run"
    share = f"{found.reproduced} of {found.run} reproduced ({100 * found.reproduced / found.run:.0f} %)"
    return f"{share}, {found.same} in the same order, {found.missed} not; {found.absent} not run"


def summary_line(rows: pd.DataFrame) -> str:
    """Return the sum over the informative numbers, and how many are not counted."""
    found = sum_of(rows)
    others = [text.format(found.uncounted[status]) for status, text in UNCOUNTED.items() if found.uncounted.get(status)]
    return (
        f"{found.run} of {found.counted} informative numbers were run: {short_sum(rows)}."
        f" Not counted: {' and '.join(others) or 'none'}"
    )


def made_by(published: Published, tidy: Tidy) -> str:
    """Return which code trained the networks behind a scorecard, and on which machine, with the number of runs."""
    asked = set(published.run_keys())
    work = tidy.work[[tuple(row) in asked for row in tidy.work[list(KEY)].itertuples(index=False)]]
    known = work.reindex(columns=["commit", "device"]).fillna("unknown")
    parts = [f"{count} trained by commit {commit} on {device}" for (commit, device), count in _counts(known)]
    return f"Audits of networks: {'; '.join(parts) or 'none'}."


def _counts(table: pd.DataFrame) -> list[tuple[Any, int]]:
    return sorted(table.value_counts().items())


def write_scorecard(published: Published, rows: pd.DataFrame, remark: str, paths: Iterable[str | Path]) -> None:
    """Write the scorecard to paths that end in .csv, .md and .html."""
    texts = {
        ".csv": rows.to_csv(index=False),
        ".md": to_markdown(published, rows, remark),
        ".html": to_html(published, rows, remark),
    }
    for path in paths:
        write_text(path, texts[Path(path).suffix])


def to_markdown(published: Published, rows: pd.DataFrame, remark: str) -> str:
    """Return the sum of a scorecard's rows, a remark, the claims, the misses, and a table for every setting."""
    tables = list(_first_tables(published, rows))
    for setting, group in rows.groupby("setting", sort=False):
        cells = tuple(map(_cells, group.to_dict("records")))
        tables.append(Table(f"{setting}: {short_sum(group)}", HEADINGS, cells, group))
    head = f"{summary_line(rows)}.\n\n{formats.escape_markdown(remark)}\n"
    return "\n".join([head, *(f"## {formats.to_markdown(table)}" for table in tables)])


def to_html(published: Published, rows: pd.DataFrame, remark: str) -> str:
    """Return a page with the claims, the misses and one table of everything, for the report."""
    cells = tuple((row["setting"], *_cells(row)) for row in rows.to_dict("records"))
    numbers = Table(f"{summary_line(rows)}. {remark}", ("setting", *HEADINGS), cells, rows)
    return formats.to_html(*_first_tables(published, rows), numbers)


def _first_tables(published: Published, rows: pd.DataFrame) -> Iterator[Table]:
    """Yield what is worth reading first: all claims, the misses, and the numbers under every claim."""
    found = claims(published, rows)
    if len(found):
        yield _claims_table(found)
    misses = counted(rows)[counted(rows)["verdict"].isin((SAME, NOT_REPRODUCED))]
    if len(misses):
        yield brief(f"Missed, and why ({len(misses)})", misses)
    for claim, sentence, verdict in found[["claim", "sentence", "verdict"]].itertuples(index=False):
        yield brief(f"{sentence}: {verdict}", counted(rows)[counted(rows)["claim"] == claim])


def brief(title: str, rows: pd.DataFrame) -> Table:
    """Return a table of numbers without their rules."""
    cells = [(row["setting"], dict(zip(HEADINGS, _cells(row)))) for row in rows.to_dict("records")]
    return Table(title, BRIEF, tuple((setting, *(own[name] for name in BRIEF[1:])) for setting, own in cells), rows)


def _claims_table(found: pd.DataFrame) -> Table:
    cells = tuple(
        (row["sentence"], claim_answer(row), f"{row['run']} of {row['numbers']} run, {row['reproduced']} reproduced")
        for row in found.to_dict("records")
    )
    return Table("The paper's claims", CLAIMS, cells, found)


def claim_answer(row: Mapping[str, Any]) -> str:
    """Return whether a claim holds, and that too little was run where nothing that was run is against it."""
    few = row["verdict"] == IN_PART and row["run"] == row["reproduced"]
    return f"{row['verdict']}, too little was run" if few else row["verdict"]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    places = [f"{name} {row[name]}" for name in ("layer", "epoch") if not pd.isna(row[name])]
    interval = "" if pd.isna(row["interval_low"]) else f"{row['interval_low']:.4g} to {row['interval_high']:.4g}"
    seeds = f"; {row['values']}" if row["published_values"] and row["values"] else ""
    return (
        f"{row['quantity']} ({', '.join(places)})" if places else row["quantity"],
        row["run"],
        _mean_text(row["published"], row["published_deviation"], row["published_n"])
        + (f"; {row['published_values']}" if row["published_values"] else ""),
        _mean_text(row["reproduced"], row["deviation"], row["n"]) + seeds,
        interval,
        row["rule"],
        row["null"],
        "yes" if row["status"] == COUNTED else f"no: {row['status']}",
        f"{row['verdict']}: {row['explanation']}" if row["explanation"] else row["verdict"],
        row["note"],
    )


def _mean_text(value: Any, deviation: float | None, n: int) -> str:
    """Return a mean or a verdict with its n; nothing without a value."""
    if pd.isna(value):
        return ""
    spread = "" if pd.isna(deviation) else f" ± {deviation:.2g}"
    return f"{value if isinstance(value, str) else f'{value:.4g}'}{spread} (n = {n})"
