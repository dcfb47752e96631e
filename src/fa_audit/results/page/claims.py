"""The paper's claims as the page shows them, from a scorecard."""

from __future__ import annotations

import pandas as pd

from fa_audit.experiments.published import Published
from fa_audit.results.judging import NOT_RUN
from fa_audit.results.page.document import Claim
from fa_audit.results.scorecard import FAILS, IN_PART, claims, sum_of
from fa_audit.results.scorecard_texts import numbers_table, summary_line

STATES = {IN_PART: "part", FAILS: "bad", NOT_RUN: "open"}  # all others hold, if on fewer seeds


def claims_of(published: Published, rows: pd.DataFrame) -> tuple[list[Claim], str]:
    """Return the claims, and the sum over a scorecard's rows in words; neither where no published number was run."""
    if not sum_of(rows).run:
        return [], ""
    found = []
    for claim in claims(published, rows).to_dict("records"):
        table = numbers_table(claim["sentence"], rows[rows["claim"] == claim["claim"]])
        numbers = claim["told"] + (f"; n = {claim['n']}" if claim["n"] else "")
        about = claim["sentence"], claim["verdict"], STATES.get(claim["verdict"], "good"), numbers
        found.append(Claim(*about, table.columns, table.rows))  # type: ignore[arg-type]
    return found, summary_line(rows)
