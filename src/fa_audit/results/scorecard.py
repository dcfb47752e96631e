"""Every published number beside our runs, from tidy tables: rows, sums and the paper's claims. Imports no torch.

A number counts if its rule can refute: if every stand-in fails it. A stand-in is a measured run that is wrong but could
be taken for the right one, from which it differs only in `ASPECTS`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.core.errors import unknown
from fa_audit.core.progress import following
from fa_audit.core.provided import provided
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.paths import TIDY, RunKey
from fa_audit.experiments.published import Entry, Published, identity, plain
from fa_audit.results.judging import (
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    Judgement,
    Scatter,
    combined,
    judge,
    scatter_of,
)
from fa_audit.results.measured import measured_folder, settings_in, tables_of
from fa_audit.results.our_runs import ABSENT, Measured, OurRuns, Spec
from fa_audit.results.statistics import extent
from fa_audit.results.tidy import Tidy, read_audits, read_tidy, tidy_of

EXPLANATIONS = "explanations.yaml"
COUNTED, UNINFORMATIVE, REPEATS, DECIDES = "counted", "uninformative", "repeats", "decides"  # the status of an entry
NUMBERS = ("value", "magnitude")  # the kinds of numbers proper
UNEXPLAINED = "unexplained"
HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"  # of a claim, beside NOT_RUN
# Fields of a specification in which a stand-in may differ from the right run, and what it is called by them.
ASPECTS: dict[str, Callable[[Spec], str]] = {
    **dict.fromkeys(("epochs", "snapshot"), lambda spec: f"epoch {last_epoch(spec)}"),  # 0: untrained
    "width": lambda spec: f"d = {spec['architecture_options']['width']}",
    "depth": lambda spec: f"L = {spec['architecture_options']['depth']}",
    "w2_std": lambda spec: f"W2 std {spec['architecture_options'].get('w2_std', 'as usual')}",
    "clip_groups": lambda spec: "clipped" if spec.get("clip_groups") else "unclipped",
    "penalty": lambda spec: f"penalty {spec['penalty']:g}",
    "method": lambda spec: spec["method"],
}
OF_A_RUN = {"penalty", "method"}  # one of them, maybe with another clipping; those of a setting go together
BUDGET = {"epochs", "snapshot"}
USUAL = Scatter(0.3, 100, "the usual 0.3")  # of a magnitude's logarithm where no run has three seeds


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
    """Read why numbers are missed, by the key of their entry; empty if the folder has no such file.

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


def scorecard(published: Published, tidy: Tidy, explanations: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return one row per published number, in the order of the file; `Scorecard.row` has the columns.

    Args:
        tidy: tables of all runs: right ones, those of another script, stand-ins.
        explanations: why numbers are missed, by the key of their entry.
    """
    card = Scorecard(published, OurRuns(tidy))
    rows = [card.row(entry) for entry in following(published.entries, "published number")]
    for entry, row in zip(published.entries, rows):
        if row["verdict"] == NOT_REPRODUCED:
            row["explanation"] = (explanations or {}).get(entry.key, UNEXPLAINED)
    return pd.DataFrame(rows).astype({"layer": "Int64", "epoch": "Int64"})


@dataclass(frozen=True)
class Scorecard:
    """Published numbers beside our runs."""

    published: Published
    ours: OurRuns

    def row(self, entry: Entry) -> dict[str, Any]:
        """Return the row of a published number."""
        own = self.measured(entry, self.specs(entry))
        scatter = self.scatter(entry)
        judged, wrong = judge(entry, own, scatter), list(self.stand_ins(entry))
        passed_by = dict.fromkeys(name for name, found in wrong if found.verdict == REPRODUCED)
        n = min(map(len, combined(entry, own).values())) if all(own.values()) else 0
        low, high = (judged.summary and judged.summary.interval) or (None, None)
        status = COUNTED if entry.counts or (wrong and not passed_by) else UNINFORMATIVE
        if entry.decides or entry.repeats:
            status = DECIDES if entry.decides else REPEATS
        return {
            "setting": entry.setting,
            "quantity": entry.quantity,
            "run": entry.whose,
            **{name: getattr(entry, name) for name in ("layer", "epoch", "samples", "kind", "published")},
            "published_deviation": entry.deviation,
            "published_n": entry.n,
            "published_values": _by_seed(entry.values),
            "script": self.published.settings[entry.setting].script,
            "reproduced": judged.reproduced,
            "deviation": judged.summary and judged.summary.deviation,
            "n": n,
            "seeds": len(entry.seeds),
            "interval_low": low,
            "interval_high": high,
            "values": _by_seed(combined(entry, own)[entry.runs[0]]) if n and len(entry.runs) == 1 else "",
            "distance": judged.distance,
            "rule": judged.rule,
            "stand_ins": len(wrong),
            "passed_by": ", ".join(passed_by),
            "status": status,
            "verdict": judged.verdict,
            "explanation": "",
            "other_scripts": "; ".join(self.other_scripts(entry, scatter)),
            "claim": entry.claim,
            "source": entry.source,
            "note": "; ".join(filter(None, [judged.remark, entry.repeats, entry.note])),
        }

    def specs(self, entry: Entry, script: str = "") -> dict[str, Spec]:
        """Return the specifications of an entry's runs, as its own script trains them or as another one does."""
        keys = (RunKey(entry.setting, run, entry.seeds[0]) for run in entry.all_runs)
        return {key.run: self.published.spec(key, script) for key in keys}

    def measured(self, entry: Entry, specs: Mapping[str, Spec]) -> Measured:
        """Return what we have of an entry's seeds."""
        found = self.ours.values(entry, specs)
        return {run: {seed: seeds[seed] for seed in entry.seeds if seed in seeds} for run, seeds in found.items()}

    def used(self) -> set[RunKey]:
        """Return our runs that published numbers are compared with."""
        specs = ((entry, spec) for entry in self.published.entries for spec in self.specs(entry).values())
        found = ((entry, self.ours.seeds(spec, entry.setting)) for entry, spec in specs)
        return {key for entry, seeds in found for seed, key in seeds.items() if seed in entry.seeds}

    def scatter(self, entry: Entry) -> Scatter:
        """Return how the right run's number varies with the seed, or, with fewer than three, how such numbers do."""
        return self._own_scatter(entry) or self.usual

    def _own_scatter(self, entry: Entry) -> Scatter | None:
        found = self.ours.values(entry, self.specs(entry))
        if entry.kind != "magnitude" or not all(found.values()):
            return None
        seeds = combined(entry, found)[entry.runs[0]]
        return scatter_of(list(seeds.values()), f"{len(seeds)} seeds")

    @cached_property
    def usual(self) -> Scatter:
        """Return the pooled scatter of the magnitudes, each counted once, whose right run has three seeds."""
        single = (entry for entry in self.published.entries if not entry.repeats)
        found = list(filter(None, map(self._own_scatter, single)))
        freedom = sum(own.n - 1 for own in found)
        pooled = math.sqrt(sum((own.n - 1) * own.deviation**2 for own in found) / freedom) if found else 0.0
        return Scatter(pooled, freedom + 1, f"{len(found)} other numbers") if found else USUAL

    def other_scripts(self, entry: Entry, scatter: Scatter) -> Iterator[str]:
        """Yield the numbers of the runs of other scripts, which do not count."""
        for script in self.published.experiments.keys() - {self.published.settings[entry.setting].script}:
            found = judge(entry, self.measured(entry, self.specs(entry, script)), scatter)
            if found.verdict != NOT_RUN:
                told = found.reproduced if isinstance(found.reproduced, str) else f"{found.reproduced:.3g}"
                n = f" (n = {found.summary.n})" if found.summary else ""
                yield f"{script}: {told}{n}, {found.verdict}"

    def stand_ins(self, entry: Entry) -> Iterator[tuple[str, Judgement]]:
        """Yield every wrong run that was measured, by what it differs in, and how the right one's rule judges it."""
        specs, scatter = self.specs(entry), self.scatter(entry)
        seeds = min(map(len, self.measured(entry, specs).values())) or len(entry.seeds)
        for change, spec in self._changes(identity(specs[entry.runs[0]])):
            if not self._stands_in(entry, specs, change, spec):
                continue
            wrong = {run: changed(own, change) for run, own in specs.items()}
            found = judge(entry, self.measured(entry, wrong), scatter, seeds)
            if found.verdict != NOT_RUN and found.reproduced != ABSENT:
                named = dict.fromkeys(ASPECTS[name](spec) for name in ASPECTS if name in change)
                yield ", ".join(named), found

    def _stands_in(self, entry: Entry, specs: Mapping[str, Spec], change: Spec, spec: Spec) -> bool:
        """Return whether a changed run is wrong for an entry, and of the kind that could be taken for the right one.

        In their first epoch trainings of every length are the same network, as are untrained ones of every kind; a
        number of early epochs does not depend on the budget.
        """
        early = entry.epoch is not None or entry.quantity.startswith(("first_", "stopped_"))
        after, right = last_epoch(spec), last_epoch(specs[entry.runs[0]])
        same = (after == right == 0) or (change.keys() <= BUDGET and (early or after == right == 1))
        fails = "method" not in change or self.ours.fails(spec)
        return not same and fails and (len(specs) == 1 or not change.keys() & OF_A_RUN)

    @cached_property
    def _changes(self) -> Callable[[str], list[tuple[Spec, Spec]]]:
        """Return measured runs that differ from a right one, given by its identity: changed fields, and the whole."""
        measured = {identity(spec): spec for spec in self.ours.specs.values()}
        return cache(lambda right: [(change, spec) for spec in measured.values()
                                    if (change := _difference(json.loads(right), spec))])  # fmt: skip


def _difference(right: Spec, spec: Spec) -> Spec:
    """Return the fields in which a run differs from the right one; none where it is not a wrong run of its kind."""
    one, other = flat(right), flat(spec)
    change = {name: other.get(name) for name in one | other if one.get(name) != other.get(name)}
    of_run = change.keys() & OF_A_RUN
    alone = len(of_run) < 2 and change.keys() <= of_run | {"clip_groups"}
    return change if change.keys() <= ASPECTS.keys() and (alone or not of_run) else {}


def last_epoch(spec: Spec) -> int:
    """Return the epoch after which a network is looked at."""
    return spec.get("snapshot", spec["epochs"])


def flat(spec: Spec) -> dict[str, Any]:
    """Return a specification without seed and monitor, the options of its network beside its other fields."""
    rest = {name: value for name, value in spec.items() if name not in ("architecture_options", "seed", "monitor")}
    return rest | dict(spec["architecture_options"])


def changed(spec: Spec, change: Mapping[str, Any]) -> Spec:
    """Return a specification with other fields or options of its network; None takes a departure back."""
    of_network = {name: change[name] for name in ("width", "depth", "w2_std") if name in change}
    rest = {name: value for name, value in change.items() if name not in of_network}
    options = {name: value for name, value in (spec["architecture_options"] | of_network).items() if value is not None}
    whole = {**spec, **rest, "architecture_options": options}
    return {name: value for name, value in whole.items() if value is not None}


def _by_seed(values: Mapping[int, Any]) -> str:
    told = {seed: plain("none" if pd.isna(value) else value) for seed, value in values.items()}
    return ", ".join(f"{seed}: {value if isinstance(value, str) else f'{value:.4g}'}" for seed, value in told.items())


# --- sums and claims -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum:
    """How many published numbers there are; of these how many were run, reproduced, and have every published seed."""

    total: int
    run: int
    reproduced: int
    complete: int

    @property
    def share(self) -> str:
        """Return how many of those that were run are reproduced, in words."""
        percent = f" ({100 * self.reproduced / self.run:.0f} %)" if self.run else ""
        return f"{self.reproduced} of {self.run} reproduced{percent}"


def sum_of(rows: pd.DataFrame) -> Sum:
    """Return the sum over rows of a scorecard."""
    run = rows[rows["verdict"] != NOT_RUN]
    return Sum(len(rows), len(run), int((run["verdict"] == REPRODUCED).sum()), int((run["n"] >= run["seeds"]).sum()))


def counted(rows: pd.DataFrame, *, numbers: bool | None = None) -> pd.DataFrame:
    """Return the rows that count: all, numbers proper only, or bounds, verdicts and orders only."""
    chosen = rows["status"] == COUNTED
    return rows[chosen if numbers is None else chosen & (rows["kind"].isin(NUMBERS) == numbers)]


def claims(published: Published, rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per claim: name, sentence, verdict, how many numbers decide it (also in words), and their n."""
    found = []
    for name, sentence in published.claims.items():
        own = deciding(rows[rows["claim"] == name])
        total = sum_of(own)
        told = f"{total.reproduced} of {total.run} kept, {total.total} in all"
        seeds = extent(own.loc[own["verdict"] != NOT_RUN, "n"])
        found.append((name, sentence, claim_verdict(own), total.total, total.run, told, seeds))
    return pd.DataFrame(found, columns=["claim", "sentence", "verdict", "numbers", "run", "told", "n"])


def deciding(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that decide a claim: its bounds, verdicts and orders, or all its numbers if it has none."""
    qualitative = rows[~rows["kind"].isin(NUMBERS)]
    return rows if qualitative.empty else qualitative


def claim_verdict(rows: pd.DataFrame) -> str:
    """Return whether a claim holds: if all that was run is reproduced, for every published seed, and all was run.

    With fewer seeds it holds on as many; where something was missed or less than half was run it holds in part; it does
    not hold if none that was run is reproduced. A claim is a sentence of the paper: wrong runs may keep it, too.
    """
    run = rows[rows["verdict"] != NOT_RUN]
    if run.empty:
        return NOT_RUN
    hits = run["verdict"] == REPRODUCED
    if not hits.all() or 2 * len(run) < len(rows):
        return IN_PART if hits.any() else FAILS
    if (run["n"] >= run["seeds"]).all() and len(run) == len(rows):
        return HOLDS
    fewest = run["n"].min()
    return f"{HOLDS} on {'one seed' if fewest == 1 else f'{fewest} seeds'}"
