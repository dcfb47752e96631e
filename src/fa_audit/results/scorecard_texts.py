"""A scorecard as text: the sum, the paper's claims, misses, every number; as CSV, markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.core.files import write_text
from fa_audit.documents import formats
from fa_audit.documents.formats import Table
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.published import BATCH, Published
from fa_audit.results.judging import NOT_REPRODUCED
from fa_audit.results.our_runs import OurRuns
from fa_audit.results.scorecard import COUNTED, DECIDES, NUMBERS, REPEATS, Scorecard, claims, counted, deciding, sum_of
from fa_audit.results.tidy import KEY, Tidy

CLAIMS = ("claim", "verdict", "its numbers", "n")
BRIEF = ("setting", "quantity", "run", "published", "ours", "verdict")  # of the numbers under a claim
MISSED = ("setting", "quantity", "run", "published", "ours", "other scripts", "counted", "explanation")
SCRIPTS = ("setting", "script", "reason", "deciding number", "published", "ours", "other scripts")
HEADINGS = ("quantity", "run", "published", "ours", "95 % interval", "other scripts", "rule", "stand-ins", "counted",
            "verdict", "note")  # fmt: skip


def summary_line(rows: pd.DataFrame) -> str:
    """Return how many numbers proper are reproduced, and with which seeds; then bounds, verdicts and orders."""
    numbers, others = sum_of(counted(rows, numbers=True)), sum_of(counted(rows, numbers=False))
    every = sum_of(rows[rows["kind"].isin(NUMBERS) & ~rows["status"].isin((REPEATS, DECIDES))])
    return (
        f"{numbers.share} of the numbers that can refute and were run; {numbers.complete} of them with every published"
        f" seed, {numbers.total - numbers.run} not run. Bounds, verdicts and orders that can refute: {others.share},"
        f" {others.total - others.run} not run. Of all numbers, also those that a wrong run passes: {every.share}"
    )


def short_sum(rows: pd.DataFrame) -> str:
    """Return how many of the entries that count are reproduced, and how many were not run."""
    found = sum_of(counted(rows))
    if not found.total:
        return "nothing that counts"
    return f"{found.share}, {found.total - found.run} not run" if found.run else f"{found.total} not run"


def made_by(published: Published, tidy: Tidy) -> str:
    """Return which code trained the networks behind a scorecard, and on which machine, with the number of runs."""
    used = Scorecard(published, OurRuns(tidy)).used()
    work = tidy.work[[RunKey(*row) in used for row in tidy.work[list(KEY)].itertuples(index=False)]]
    known = work.reindex(columns=["commit", "device"]).fillna("unknown")
    counts = sorted(known.value_counts().items())
    parts = [f"{count} trained by commit {commit} on {device}" for (commit, device), count in counts]
    return f"Audits of networks: {'; '.join(parts) or 'none'}."


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
        tables.append(numbers_table(f"{setting}: {short_sum(group)}", group, HEADINGS))
    head = f"{summary_line(rows)}.\n\n{formats.escape_markdown(remark)}\n"
    return "\n".join([head, *(f"## {formats.to_markdown(table)}" for table in tables)])


def to_html(published: Published, rows: pd.DataFrame, remark: str) -> str:
    """Return a page with the claims, the misses and one table of everything, for the report."""
    numbers = numbers_table(f"{summary_line(rows)}. {remark}", rows, ("setting", *HEADINGS))
    return formats.to_html(*_first_tables(published, rows), numbers)


def _first_tables(published: Published, rows: pd.DataFrame) -> Iterator[Table]:
    """Yield what is worth reading first: claims, every miss, which script made what, the numbers under every claim."""
    found = claims(published, rows)
    if len(found):
        cells = found[["sentence", "verdict", "told", "n"]].itertuples(index=False, name=None)
        yield Table("The paper's claims", CLAIMS, tuple(cells), found)
    misses = rows[rows["verdict"] == NOT_REPRODUCED]
    if len(misses):
        yield numbers_table(f"Missed, and why ({len(misses)}, of which {len(counted(misses))} count)", misses, MISSED)
    yield _scripts_table(published, rows)
    for claim, sentence, verdict in found[["claim", "sentence", "verdict"]].itertuples(index=False):
        yield numbers_table(f"{sentence}: {verdict}", deciding(rows[rows["claim"] == claim]))


def numbers_table(title: str, rows: pd.DataFrame, columns: Sequence[str] = BRIEF) -> Table:
    """Return a table of numbers, by default without their rules."""
    told = (row | _cells(row) for row in rows.to_dict("records"))
    return Table(title, tuple(columns), tuple(tuple(row[column] for column in columns) for row in told), rows)


def _scripts_table(published: Published, rows: pd.DataFrame) -> Table:
    """Return which script every setting is of, why, and what each script's runs have of the number that decides."""
    decides = ((row["setting"], _cells(row)) for row in rows[rows["status"] == DECIDES].to_dict("records"))
    numbers = {setting: (f"{told['quantity']} of {told['run']}", *(told[name] for name in SCRIPTS[4:]))
               for setting, told in decides}  # fmt: skip
    cells = ((x, own.script, own.reason, *numbers.get(x, [""] * 4)) for x, own in published.settings.items())
    return Table("Which script made which numbers", SCRIPTS, tuple(cells), rows)


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return what is printed of a number, by heading."""
    places = [f"{name} {row[name]}" for name in ("layer", "epoch") if not pd.isna(row[name])]
    places += [f"{row['samples']} samples"] if row["samples"] != BATCH else []
    interval = "" if pd.isna(row["interval_low"]) else f"{row['interval_low']:.4g} to {row['interval_high']:.4g}"
    seeds = f"; {row['values']}" if row["published_values"] and row["values"] else ""
    passed = f"passed by {row['passed_by']}" if row["passed_by"] else "none passes"
    return {
        "quantity": f"{row['quantity']} ({', '.join(places)})" if places else row["quantity"],
        "run": row["run"],
        "published": _mean_text(row["published"], row["published_deviation"], row["published_n"])
        + (f"; {row['published_values']}" if row["published_values"] else ""),
        "ours": _mean_text(row["reproduced"], row["deviation"], row["n"]) + seeds,
        "95 % interval": interval,
        "other scripts": row["other_scripts"],
        "rule": row["rule"],
        "stand-ins": f"{row['stand_ins']}, {passed}" if row["stand_ins"] else "none measured",
        "counted": "yes" if row["status"] == COUNTED else f"no: {row['status']}",
        "verdict": f"{row['verdict']}: {row['explanation']}" if row["explanation"] else row["verdict"],
        "note": row["note"],
    }


def _mean_text(value: Any, deviation: float | None, n: int) -> str:
    """Return a mean or a verdict with its n; nothing without a value."""
    if pd.isna(value):
        return ""
    spread = "" if pd.isna(deviation) else f" ± {deviation:.2g}"
    return f"{value if isinstance(value, str) else f'{value:.4g}'}{spread} (n = {n})"
