"""A scorecard as text: the headline, the paper's claims, what differs, which script made what; as
CSV and Markdown.
"""

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
from fa_audit.results.judging import DIFFERS
from fa_audit.results.our_runs import OurRuns
from fa_audit.results.scorecard import Scorecard, Sum, claims, counted, deciding, sum_of, with_seeds
from fa_audit.results.tidy import KEY, Tidy

CLAIMS = ("claim", "verdict", "its numbers", "n")
BRIEF = (
    "setting",
    "quantity",
    "run",
    "published",
    "ours",
    "verdict",
)  # of the numbers under a claim
DIFFERENT = (
    "setting",
    "quantity",
    "run",
    "published",
    "ours",
    "rule",
    "other scripts",
    "counted",
    "explanation",
)
SCRIPTS = (
    "setting",
    "script",
    "reason",
    "deciding number",
    "published",
    "ours",
    "other scripts",
    "decides",
)


def summary_line(rows: pd.DataFrame) -> str:
    """Return the headline: how many of the published numbers that were run agree, also where both
    sides have seeds.
    """
    whole, several = sum_of(counted(rows)), sum_of(with_seeds(counted(rows)))
    return (
        f"{_share(whole)}; of trained networks with three seeds on both sides {several.agree} of {several.run};"
        f" {whole.not_run} not run"
    )


def released_line(published: Published, rows: pd.DataFrame) -> str:
    """Return how many numbers agree if the released script alone is asked, for every setting."""
    alone = sum_of(counted(rows), "released_verdict")
    return f"By runs of the released script ({published.released}) alone: {_share(alone)}; {alone.not_run} not run"


def short_sum(rows: pd.DataFrame) -> str:
    """Return how many of the numbers that count agree, and how many were not run."""
    found = sum_of(counted(rows))
    return f"{found.agree} of {found.run} agree{_percent(found)}, {found.not_run} not run"


def _share(found: Sum) -> str:
    return f"{found.agree} of {found.run} published numbers that were run agree{_percent(found)}"


def _percent(found: Sum) -> str:
    return f" ({100 * found.agree / found.run:.0f} %)" if found.run else ""


def made_by(published: Published, tidy: Tidy) -> str:
    """Return which code trained the networks behind a scorecard, and on which machine, with the
    number of runs.
    """
    used = Scorecard(published, OurRuns(tidy)).used()
    work = tidy.work[[RunKey(*row) in used for row in tidy.work[list(KEY)].itertuples(index=False)]]
    known = work.reindex(columns=["commit", "device"]).fillna("unknown")
    counts = sorted(known.value_counts().items())
    parts = [
        f"{count} trained by commit {commit} on {device}" for (commit, device), count in counts
    ]
    return f"Audits of networks: {'; '.join(parts) or 'none'}."


def write_scorecard(
    published: Published, rows: pd.DataFrame, remark: str, paths: Iterable[str | Path]
) -> None:
    """Write the scorecard to paths that end in .csv (every number) and .md (the headline, claims,
    what differs).
    """
    texts = {".csv": rows.to_csv(index=False), ".md": to_markdown(published, rows, remark)}
    for path in paths:
        write_text(path, texts[Path(path).suffix])


def to_markdown(published: Published, rows: pd.DataFrame, remark: str) -> str:
    """Return the headline, a remark, the claims and their numbers, what differs, and which script
    made what.
    """
    lines = (
        summary_line(rows),
        released_line(published, rows),
        formats.escape_markdown(remark).removesuffix("."),
    )
    head = "".join(f"{line}.\n\n" for line in lines)
    return head + "\n".join(
        f"## {formats.to_markdown(table)}" for table in _tables(published, rows)
    )


def _tables(published: Published, rows: pd.DataFrame) -> Iterator[Table]:
    found = claims(published, rows)
    if len(found):
        cells = found[["sentence", "verdict", "told", "n"]].itertuples(index=False, name=None)
        yield Table("The paper's claims", CLAIMS, tuple(cells), found)
    different = rows[rows["verdict"] == DIFFERS]
    if len(different):
        count = len(counted(different))
        yield numbers_table(
            f"Different, and why ({len(different)}, of which {count} count)", different, DIFFERENT
        )
    yield _scripts_table(published, rows)
    for claim, sentence, verdict in found[["claim", "sentence", "verdict"]].itertuples(index=False):
        yield numbers_table(f"{sentence}: {verdict}", deciding(rows[rows["claim"] == claim]))


def numbers_table(title: str, rows: pd.DataFrame, columns: Sequence[str] = BRIEF) -> Table:
    """Return a table of numbers, by default without their rules."""
    told = [row | _cells(row) for row in rows.to_dict("records")]
    return Table(
        title, tuple(columns), tuple(tuple(row[column] for column in columns) for row in told), rows
    )


def _scripts_table(published: Published, rows: pd.DataFrame) -> Table:
    """Return which script made each setting, why, and whether the number that should tell the
    scripts apart does.
    """
    told = {row["setting"]: _cells(row) for row in rows[rows["decides"] != ""].to_dict("records")}
    cells = []
    for name, setting in published.settings.items():
        number = told.get(name)
        if number:
            of_number = (
                f"{number['quantity']} of {number['run']}",
                *(number[column] for column in SCRIPTS[4:]),
            )
        else:
            of_number = ("", "", "", "", "")
        cells.append((name, setting.script, setting.reason, *of_number))
    return Table("Which script made which numbers", SCRIPTS, tuple(cells), rows)


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return what is printed of a number, by heading."""
    places = [f"{name} {row[name]}" for name in ("layer", "epoch") if not pd.isna(row[name])]
    places += [f"{row['samples']} samples"] if row["samples"] != BATCH else []
    seeds = f"; {row['values']}" if row["published_values"] and row["values"] else ""
    of_other = (
        f", of {row['judged_script']}" if row["judged_script"] not in ("", row["script"]) else ""
    )
    return {
        "quantity": f"{row['quantity']} ({', '.join(places)})" if places else row["quantity"],
        "run": row["run"],
        "published": _mean_text(row["published"], row["published_deviation"], row["published_n"])
        + (f"; {row['published_values']}" if row["published_values"] else ""),
        "ours": _mean_text(row["reproduced"], row["deviation"], row["n"]) + seeds + of_other,
        "other scripts": row["other_scripts"],
        "rule": row["rule"],
        "counted": "yes" if row["counted"] else "no",
        "decides": row["decides"],
        "verdict": f"{row['verdict']}: {row['explanation']}"
        if row["explanation"]
        else row["verdict"],
    }


def _mean_text(value: Any, deviation: float | None, n: int) -> str:
    """Return a mean or a verdict with its n; nothing without a value."""
    if pd.isna(value):
        return ""
    spread = "" if pd.isna(deviation) else f" ± {deviation:.2g}"
    return f"{value if isinstance(value, str) else f'{value:.4g}'}{spread} (n = {n})"
