"""Claims of each method's own source, beside what its trained blocks add to frozen ones here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd
import yaml

from fa_audit.core.errors import AuditError
from fa_audit.documents.formats import Table
from fa_audit.results.standings import as_published, standing, with_margins
from fa_audit.results.tables.leaderboard import WORTH
from fa_audit.results.tables.rows import Made, run_table
from fa_audit.results.tidy import Tidy

NOTE = "Claim: what a source of the method reports, on a network and budget of its own, and backpropagation (BP) there."


@cache
def claims_of_sources() -> dict[str, dict[str, Any]]:
    """Return the claims by method, as ``methods/claims.yaml`` has them."""
    return dict(
        yaml.safe_load(files("fa_audit.methods").joinpath("claims.yaml").read_text("utf-8"))
    )


def claim(group: pd.DataFrame, _: int) -> str:
    """Return what the source of a run's method reports, in one line."""
    entry = claims_of_sources().get(group["method"].iloc[0])
    if entry is None:
        return "none"
    measure = next((name for name in ("error", "accuracy") if name in entry), "")
    if not measure:
        return f"{entry['source']}: {entry['where']}"
    beside = f" (BP {entry['bp']:g})" if "bp" in entry else ""
    figure = f"{entry['source']}: {measure} {entry[measure]:g} %{beside}"
    return f"{figure}, {entry['network']}, {entry['data']};\n{entry['where']}"


def claims(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per method: its source's claim, accuracy, frozen baseline and margin here.

    Raises:
        AuditError: the settings have no run of a method as it was published.
    """
    ranked = with_margins(tidy)
    plain = ranked.runs[as_published(ranked.runs)]
    if plain.empty:
        raise AuditError(
            "claims: found no run of a method without penalty, frozen blocks or random targets."
        )
    shown = replace(
        ranked,
        runs=plain,
        settings=tuple(name for name in tidy.settings if name in set(plain["setting"])),
    )
    columns = (WORTH[0], *WORTH[2:], Made("claim", claim))
    return run_table(
        shown, columns, rows=standing(shown), caption=f"{title}. {NOTE}", labels=labels
    )
