"""Every published number beside measured ones, from tidy tables: rows, sums and claims. Imports no
torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from fa_audit.core.errors import unknown
from fa_audit.core.provided import provided
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.paths import TIDY, RunKey
from fa_audit.experiments.published import Entry, Published, plain
from fa_audit.results.judging import AGREES, DIFFERS, NOT_RUN, Judgement, combined, judge
from fa_audit.results.measured import measured_folder, settings_in, tables_of
from fa_audit.results.our_runs import Measured, OurRuns, Spec
from fa_audit.results.statistics import extent
from fa_audit.results.tidy import Tidy, read_audits, read_tidy, tidy_of

EXPLANATIONS = "explanations.yaml"
SEVERAL = (
    3  # seeds on both sides, from which on a number of a trained network is also counted by itself
)
NUMBERS = ("value", "magnitude")  # the kinds of numbers proper
UNEXPLAINED = "unexplained"
HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"  # of a claim, beside NOT_RUN
DECIDES, BY_DATE = (
    "yes",
    "no: by date alone",
)  # whether a setting's deciding number tells its script, beside NOT_RUN


def read_results(folder: Path) -> Tidy:
    """Read all runs of a folder.

    Args:
        folder: of results, whose audits are made tables, or of tidy tables.

    Raises:
        AuditError: there are neither; a file is not one, or of another run, or lacks a column.
    """
    if audits := sorted(folder.glob("audits/*/*/seed*.json")):
        histories = [folder / "trajectories" / f"{RunKey.of(path)}.csv" for path in audits]
        return tidy_of(read_audits(audits), list(filter(Path.exists, histories)))
    folder = measured_folder(folder)
    return read_tidy(tables_of(folder, settings_in(folder), TIDY))


def read_explanations(folder: Path, published: Published) -> dict[str, str]:
    """Read why numbers differ, by the key of their entry; empty if the folder has no such file.

    Raises:
        AuditError: it is not a mapping, or names an unknown entry.
    """
    path = provided(folder) / EXPLANATIONS
    found = load_config(path)[0] if path.exists() else {}
    known = {entry.key for entry in published.entries}
    if strange := sorted(found.keys() - known):
        raise unknown("entry", strange[0], known, where=str(path))
    return dict(found)


# --- the rows --------------------------------------------------------------------------------------------------------


def scorecard(
    published: Published, tidy: Tidy, explanations: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Return one row per published number, in the order of the file; docs/scorecard.md has the
    columns.

    Args:
        tidy: tables of all runs, by whichever script.
        explanations: why numbers differ, by the key of their entry.
    """
    card = Scorecard(published, OurRuns(tidy))
    rows = [
        card.row(entry)
        for entry in tqdm(published.entries, "published number", leave=False, disable=None)
    ]
    for entry, row in zip(published.entries, rows):
        if row["verdict"] == DIFFERS:
            row["explanation"] = (explanations or {}).get(entry.key, UNEXPLAINED)
    return pd.DataFrame(rows).astype({"layer": "Int64", "epoch": "Int64"})


@dataclass(frozen=True)
class Scorecard:
    """Published numbers beside measured ones."""

    published: Published
    ours: OurRuns

    def row(self, entry: Entry) -> dict[str, Any]:
        """Return the row of a published number, judged by runs of its own script, or else of
        another one.
        """
        setting = self.published.settings[entry.setting]
        found = {
            script: judge(entry, self.measured(entry, script)) for script in self.scripts(entry)
        }
        script = next(
            (name for name, judged in found.items() if judged.verdict != NOT_RUN), setting.script
        )
        judged = found[script]
        numbers = combined(entry, self.measured(entry, script)) if judged.verdict != NOT_RUN else {}
        low, high = (judged.summary and judged.summary.interval) or (None, None)
        return {
            "setting": entry.setting,
            "quantity": entry.quantity,
            "run": entry.whose,
            **{
                name: getattr(entry, name)
                for name in ("layer", "epoch", "samples", "kind", "published")
            },
            "published_deviation": entry.deviation,
            "published_n": entry.n,
            "published_values": _by_seed(entry.values),
            "script": setting.script,
            "judged_script": script if numbers else "",
            "reproduced": judged.reproduced,
            "deviation": judged.summary and judged.summary.deviation,
            "n": min(map(len, numbers.values()), default=0),
            "seeds": len(entry.seeds),
            "interval_low": low,
            "interval_high": high,
            "values": _by_seed(numbers[entry.runs[0]]) if len(numbers) == 1 else "",
            "distance": judged.distance,
            "rule": judged.rule,
            "trained": all(_last_epoch(spec) > 0 for spec in self.specs(entry, script).values()),
            "counted": not (entry.repeats or setting.excluded),
            "decides": _decides(setting.script, found) if entry.decides else "",
            "verdict": judged.verdict,
            "released_verdict": found[self.published.released].verdict,
            "other_scripts": "; ".join(
                _told(name, other) for name, other in found.items() if name != script
            ),
            "explanation": "",
            "claim": entry.claim,
            "source": entry.source,
            "note": "; ".join(
                filter(None, [judged.remark, entry.repeats, setting.excluded, entry.note])
            ),
        }

    def scripts(self, entry: Entry) -> list[str]:
        """Return the scripts in the order in which an entry's runs are looked for, its own first."""
        return list(
            dict.fromkeys(
                [self.published.settings[entry.setting].script, *self.published.experiments]
            )
        )

    def specs(self, entry: Entry, script: str) -> dict[str, Spec]:
        """Return the specifications of an entry's runs, as a script trains them."""
        keys = (RunKey(entry.setting, run, entry.seeds[0]) for run in entry.all_runs)
        return {key.run: self.published.spec(key, script) for key in keys}

    def measured(self, entry: Entry, script: str) -> Measured:
        """Return what the tables have of an entry's seeds, by a script."""
        found = self.ours.values(entry, self.specs(entry, script))
        return {
            run: {seed: seeds[seed] for seed in entry.seeds if seed in seeds}
            for run, seeds in found.items()
        }

    def used(self) -> set[RunKey]:
        """Return the measured runs that published numbers are judged by."""
        used = set()
        for entry in self.published.entries:
            for script in self.scripts(entry):
                found = [
                    self.ours.seeds(spec, entry.setting)
                    for spec in self.specs(entry, script).values()
                ]
                if all(found):
                    used |= {
                        seeds[seed] for seeds in found for seed in entry.seeds if seed in seeds
                    }
                    break
        return used


def _last_epoch(spec: Spec) -> int:
    """Return the epoch after which a network is looked at."""
    return int(spec.get("snapshot", spec["epochs"]))


def _decides(script: str, found: Mapping[str, Judgement]) -> str:
    """Return whether a number tells its setting's script from the others: it agrees with this one
    alone.
    """
    own = found[script].verdict
    others = {judged.verdict for name, judged in found.items() if name != script}
    if own == DIFFERS or AGREES in others:
        return BY_DATE
    return NOT_RUN if NOT_RUN in {own, *others} else DECIDES


def _told(script: str, judged: Judgement) -> str:
    """Return what the runs of a script have, and how it is judged."""
    if judged.reproduced is None:
        return f"{script}: {judged.verdict}"
    value = judged.reproduced if isinstance(judged.reproduced, str) else f"{judged.reproduced:.3g}"
    n = f" (n = {judged.summary.n})" if judged.summary else ""
    return f"{script}: {value}{n}, {judged.verdict}"


def _by_seed(values: Mapping[int, Any]) -> str:
    told = {seed: plain("none" if pd.isna(value) else value) for seed, value in values.items()}
    return ", ".join(
        f"{seed}: {value if isinstance(value, str) else f'{value:.4g}'}"
        for seed, value in told.items()
    )


# --- sums and claims -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum:
    """How many published numbers there are, how many of them were run, and how many of these agree."""

    total: int
    run: int
    agree: int

    @property
    def not_run(self) -> int:
        """Return how many were not run."""
        return self.total - self.run


def sum_of(rows: pd.DataFrame, verdict: str = "verdict") -> Sum:
    """Return the sum over rows of a scorecard.

    Args:
        verdict: the column to count: ``verdict``, or ``released_verdict`` for the released script
            alone.
    """
    run = rows[verdict] != NOT_RUN
    return Sum(len(rows), int(run.sum()), int((rows[verdict] == AGREES).sum()))


def counted(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that count: every number once, and none of an excluded setting."""
    return rows[rows["counted"].astype(bool)]


def with_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of trained networks that have at least `SEVERAL` seeds on both sides."""
    return rows[
        rows["trained"].astype(bool) & (rows["n"] >= SEVERAL) & (rows["published_n"] >= SEVERAL)
    ]


def claims(published: Published, rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per claim: name, sentence, verdict, how many numbers decide it (also in
    words), and their n.
    """
    found = []
    for name, sentence in published.claims.items():
        own = deciding(rows[rows["claim"] == name])
        total = sum_of(own)
        told = f"{total.agree} of {total.run} agree, {total.not_run} not run"
        seeds = extent(own.loc[own["verdict"] != NOT_RUN, "n"])
        found.append((name, sentence, claim_verdict(own), total.total, total.run, told, seeds))
    return pd.DataFrame(
        found, columns=["claim", "sentence", "verdict", "numbers", "run", "told", "n"]
    )


def deciding(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that decide a claim: its bounds, verdicts and orders, or all its numbers if
    it has none.
    """
    qualitative = rows[~rows["kind"].isin(NUMBERS)]
    return rows if qualitative.empty else qualitative


def claim_verdict(rows: pd.DataFrame) -> str:
    """Return whether a claim holds: if all that was run agrees, for every published seed, and all
    was run.

    With fewer seeds it holds on as many; where something differs or less than half was run it holds
    in part; it does not hold if nothing that was run agrees.
    """
    run = rows[rows["verdict"] != NOT_RUN]
    if run.empty:
        return NOT_RUN
    agrees = run["verdict"] == AGREES
    if not agrees.all() or 2 * len(run) < len(rows):
        return IN_PART if agrees.any() else FAILS
    if (run["n"] >= run["seeds"]).all() and len(run) == len(rows):
        return HOLDS
    fewest = run["n"].min()
    return f"{HOLDS} on {'one seed' if fewest == 1 else f'{fewest} seeds'}"
