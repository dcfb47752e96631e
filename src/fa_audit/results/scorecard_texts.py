"""Write a scorecard as Markdown with the headline, the paper's claims and the differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fa_audit.documents import formats
from fa_audit.documents.formats import Table
from fa_audit.experiments.published import BATCH, Published
from fa_audit.results.judging import DIFFERS
from fa_audit.results.scorecard import Sum, claims, counted, number, sum_of, with_seeds

_CLAIMS = ("claim", "verdict", "its numbers", "n")
_NUMBERS = ("setting", "quantity", "run", "published", "ours", "rule: result", "in headline",
           "explanation")  # fmt: skip


def summary_line(rows: pd.DataFrame) -> str:
    """Return the headline: how many numbers agree, of all and of those `with_seeds`."""
    every, several = sum_of(counted(rows)), sum_of(with_seeds(counted(rows)))
    return (
        f"{every.agree} of {every.run} published numbers that were run agree{_percent(every)}. Of"
        f" the {every.run}, {several.run} rest on three or more trained seeds, both published and"
        f" ours; {several.agree} agree. {every.not_run} more were not run"
    )


def short_sum(rows: pd.DataFrame) -> str:
    """Return how many of the compared numbers agree, and how many have no run."""
    found = sum_of(counted(rows))
    return f"{found.agree} of {found.run} agree{_percent(found)}, {found.not_run} not run"


def _percent(found: Sum) -> str:
    return f" ({100 * found.agree / found.run:.0f} %)" if found.run else ""


def to_markdown(published: Published, rows: pd.DataFrame) -> str:
    """Return the headline, the claims and the differences as Markdown."""
    alone = sum_of(counted(rows), "released_verdict")
    text = (
        f"{summary_line(rows)}.\n\nCounting only our runs that follow the authors'"
        f" released script ({published.released_script}), {alone.agree} of {alone.run} agree"
        f"{_percent(alone)}; {alone.not_run} have no run.\n\n"
    )
    found, different = claims(published, rows), rows[rows["verdict"] == DIFFERS]
    tables = []
    if len(found):
        cells = found[["sentence", "verdict", "told", "n"]].itertuples(index=False, name=None)
        tables.append(Table("The paper's claims", _CLAIMS, tuple(cells)))
    if len(different):
        title = (
            f"Different, and why ({len(different)} numbers; the headline counts"
            f" {len(counted(different))} of them)"
        )
        tables.append(Table(title, _NUMBERS, tuple(map(_cells, different.to_dict("records")))))
    return text + "\n".join(f"## {formats.to_markdown(table)}" for table in tables)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a published number that differs from ours."""
    places = [f"{name} {row[name]}" for name in ("layer", "epoch") if not pd.isna(row[name])]
    if row["samples"] != BATCH:
        places.append(f"{row['samples']} samples")
    return (
        row["setting"],
        f"{row['quantity']} ({', '.join(places)})" if places else row["quantity"],
        row["run"],
        mean_text(row["published"], row["published_deviation"], row["published_n"]),
        our_text(row),
        row["rule"],
        "yes" if row["counted"] else "no",
        row["explanation"],
    )


def our_text(row: Mapping[str, Any]) -> str:
    """Format our number in a row of the scorecard, and name its script if that is not the row's."""
    ours = mean_text(row["reproduced"], row["deviation"], row["n"])
    if row["judged_script"] != row["script"]:
        ours += f", of {row['judged_script']}"
    return ours


def mean_text(value: Any, deviation: float | None, n: int) -> str:
    """Format a mean with its deviation, or an answer in words; append the number of seeds."""
    spread = "" if pd.isna(deviation) else f" ± {deviation:.2g}"
    return f"{number(value)}{spread} (n = {n})"
