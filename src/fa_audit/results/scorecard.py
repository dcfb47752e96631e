"""Compare every published number with ours, and count how many agree, in all and by claim.

Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fa_audit.core.errors import AuditError, shortened, unknown
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.published import FILE, Entry, Published, plain, read_published_file
from fa_audit.results.judging import (
    AGREES,
    DIFFERS,
    NOT_RUN,
    Comparison,
    compare,
)
from fa_audit.results.our_runs import OurRuns
from fa_audit.results.statistics import Summary, extent
from fa_audit.results.tidy import Tidy

_EXPLANATIONS = "explanations.yaml"
_SEVERAL = 3  # least number of seeds, ours and published, for the headline's second count
_OF_ENTRY = ("setting", "quantity", "layer", "epoch", "samples", "kind", "published", "claim",
             "source")  # fmt: skip
_DECIDES, _BY_DATE = "yes", "no: by date alone"  # whether a number shows which script made it


def read_explanations(folder: Path, published: Published) -> dict[str, str]:
    """Read the reasons why numbers differ from the published ones, by the key of their entry.

    They are in the folder's ``explanations.yaml``; without this file the mapping is empty.

    Raises:
        AuditError: the file is not a mapping, or names an entry that is unknown, also to the
            project's own list, or gives a reason that is not a text.
    """
    path = folder / _EXPLANATIONS
    found = load_config(path)[0] if path.exists() else {}
    known = {entry.key for entry in published.entries}
    if not known.issuperset(found):
        known |= {entry.key for entry in read_published_file(FILE).entries}
    for key, reason in found.items():
        if key not in known:
            raise unknown("entry", key, known, where=str(path))
        if not isinstance(reason, str):
            raise AuditError(f"{path}: {key}: found {shortened(reason)}; expected a text.")
    return found


# --- the rows


def scorecard(
    published: Published, tidy: Tidy, explanations: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Return one row per published number, in the order of the file. docs/reproduction.md explains
    the columns.

    Args:
        tidy: tables of all runs, whichever script trained them.
        explanations: reasons why numbers differ, by the key of their entry.
    """
    ours = OurRuns(tidy)
    rows = []
    for entry in published.entries:
        row = _row(published, entry, ours)
        if row["verdict"] == DIFFERS:
            row["explanation"] = (explanations or {}).get(entry.key, "unexplained")
        rows.append(row)
    return pd.DataFrame(rows).astype({"layer": "Int64", "epoch": "Int64"})


def _row(published: Published, entry: Entry, ours: OurRuns) -> dict[str, Any]:
    """Compare a published number with our runs, and return its row.

    The compared runs are those of the setting's script; if there are none, of another script.
    """
    setting = published.settings[entry.setting]
    # The setting's script is in front: the runs of the first script that has any are compared.
    scripts = list(dict.fromkeys([setting.script, *published.scripts]))
    specs = {script: published.specs(entry, script) for script in scripts}
    every = {}
    for script in scripts:
        every[script] = compare(entry, ours.measured(entry, specs[script]))
    run = [script for script in scripts if every[script].verdict != NOT_RUN]
    script = [*run, setting.script][0]
    found = every[script]
    summary = found.summary or Summary(0, math.nan, None, None)
    low, high = summary.interval or (None, None)
    # An entry of the kind `order` has the numbers of several runs.
    values = [_by_seed(by_seed) for by_seed in found.numbers.values()]
    others = [f"{name}: {_text(every[name])}" for name in scripts if name != script]
    return {
        **{name: getattr(entry, name) for name in _OF_ENTRY},
        "run": entry.whose,
        "published_deviation": entry.deviation,
        "published_n": entry.n,
        "published_values": _by_seed(entry.values),
        "script": setting.script,
        "judged_script": "".join(run[:1]),
        "reproduced": found.reproduced,
        "deviation": summary.deviation,
        "interval_low": low,
        "interval_high": high,
        "n": found.n,
        "seeds": len(entry.seeds),
        "values": values[0] if len(values) == 1 else "",
        "distance": found.distance,
        "rule": found.rule,
        "trained": all(spec.get("snapshot", spec["epochs"]) for spec in specs[script].values()),
        "counted": not (entry.repeats or setting.excluded),
        "decides": _decides(setting.script, every) if entry.decides else "",
        "verdict": found.verdict,
        "released_verdict": every[published.released_script].verdict,
        "other_scripts": "; ".join(others),
        "explanation": "",
        "note": "; ".join(filter(None, [entry.repeats, setting.excluded, entry.note])),
    }


def _by_seed(values: Mapping[int, Any]) -> str:
    return ", ".join(f"{seed}: {number(value)}" for seed, value in values.items())


def _decides(script: str, every: Mapping[str, Comparison]) -> str:
    """Say whether a number shows which script made it, by agreeing with runs of `script` only."""
    own = every[script].verdict
    others = {found.verdict for name, found in every.items() if name != script}
    if own == DIFFERS or AGREES in others:
        return _BY_DATE
    return NOT_RUN if NOT_RUN in {own, *others} else _DECIDES


def _text(found: Comparison) -> str:
    if found.reproduced is None:
        return found.verdict
    seeds = f" (n = {found.n})" if found.summary else ""
    return f"{number(found.reproduced, 3)}{seeds}, {found.verdict}"


def number(value: Any, digits: int = 4) -> str:
    """Format a number or an answer; a missing one is "none"."""
    if isinstance(value, str | bool):
        return str(plain(value))
    return "none" if pd.isna(value) else f"{value:.{digits}g}"


# --- sums and claims


class Sum(NamedTuple):
    """Counts of published numbers: all, those compared with runs, and those that agree."""

    total: int
    run: int
    agree: int

    @property
    def not_run(self) -> int:
        """Return how many numbers have no run to compare with."""
        return self.total - self.run


def sum_of(rows: pd.DataFrame, verdict: str = "verdict") -> Sum:
    """Count the rows of a scorecard.

    Args:
        verdict: the column to count: ``verdict``, or ``released_verdict`` for the released script
            alone.
    """
    found = rows[verdict]
    return Sum(len(rows), int((found != NOT_RUN).sum()), int((found == AGREES).sum()))


def counted(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that count: no repeated numbers and no excluded settings."""
    return rows[rows["counted"]]


def with_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of trained networks with at least three published seeds and three of ours."""
    seeds = rows[["n", "published_n"]].min(axis=1)
    return rows[rows["trained"] & (seeds >= _SEVERAL)]


def claims(published: Published, rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per claim: name, sentence, verdict, counts of its numbers in words, and seeds.

    A claim's bounds, verdicts and orders decide it; if it has none of these, all its numbers do.
    """
    found = []
    for name, sentence in published.claims.items():
        deciding = rows[rows["claim"] == name]
        qualitative = ~deciding["kind"].isin(["value", "magnitude"])
        if qualitative.any():
            deciding = deciding[qualitative]
        total = sum_of(deciding)
        told = f"{total.agree} of {total.run} agree"
        if total.not_run:
            told += f", {total.not_run} not run"
        seeds = extent(deciding.loc[deciding["verdict"] != NOT_RUN, "n"])
        found.append((name, sentence, _claim_verdict(deciding), told, seeds))
    return pd.DataFrame(found, columns=["claim", "sentence", "verdict", "told", "n"])


def _claim_verdict(rows: pd.DataFrame) -> str:
    total = sum_of(rows)
    if not total.run:
        return NOT_RUN
    if not total.agree:
        return "does not hold"
    if total.agree < total.run or 2 * total.run < total.total:
        return "holds in part"
    run = rows[rows["verdict"] != NOT_RUN]
    if not total.not_run and (run["n"] >= run["seeds"]).all():
        return "holds"
    fewest = run["n"].min()
    return "holds on one seed" if fewest == 1 else f"holds on {fewest} seeds"
