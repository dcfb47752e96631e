"""The paper's claims as the page shows them, from a scorecard."""

from __future__ import annotations

import pandas as pd

from fa_audit.experiments.published import Published
from fa_audit.results.page.document import Claim
from fa_audit.results.scorecard import FAILS, HOLDS, IN_PART, NOT_RUN, claims, counted, sum_of
from fa_audit.results.scorecard_texts import brief, claim_answer, summary_line

STATES = {HOLDS: "good", IN_PART: "part", FAILS: "bad", NOT_RUN: "open"}


def claims_of(published: Published, rows: pd.DataFrame) -> tuple[list[Claim], str]:
    """Return the claims, and the sum over a scorecard's rows in words; neither where no published number was run."""
    if not sum_of(rows).run:
        return [], ""
    found = []
    for claim in claims(published, rows).to_dict("records"):
        table = brief(claim["sentence"], counted(rows)[counted(rows)["claim"] == claim["claim"]])
        numbers = f"{claim['run']} of {claim['numbers']} numbers run, {claim['reproduced']} reproduced"
        about = claim["sentence"], claim_answer(claim), STATES[claim["verdict"]], numbers
        found.append(Claim(*about, table.columns, table.rows))  # type: ignore[arg-type]
    return found, summary_line(rows)
