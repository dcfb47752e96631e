"""Compare every published number with our runs, by the rule of its kind, from tidy tables. Imports no torch."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import sub, truediv
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.core.errors import AuditError, listed, unknown
from fa_audit.core.thresholds import depth_margin
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.paths import TIDY, RunKey
from fa_audit.experiments.published import (
    COUNTED,
    NEVER,
    QUANTITIES,
    SAME_ORDER,
    Bound,
    Entry,
    Magnitude,
    Published,
    Quantity,
    Value,
    Verdict,
    at_most,
    plain,
)
from fa_audit.results.measured import measured_folder, settings_in, tables_of
from fa_audit.results.outcomes import withdrawals
from fa_audit.results.statistics import Summary, summarise
from fa_audit.results.tidy import KEY, Tidy, read_audits, read_tidy, tidy_of

EXPLANATIONS = "explanations.yaml"
REPRODUCED, SAME, NOT_REPRODUCED, NOT_RUN = "reproduced", "same order", "not reproduced", "not run"
UNEXPLAINED = "unexplained"
HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"  # of a claim, beside NOT_RUN
QUALITATIVE = ("bound", "verdict", "order")  # kinds of entries that decide a claim, where it has any
COLUMNS = (
    "setting", "quantity", "run", "layer", "epoch", "kind", "published", "published_deviation", "published_n",
    "published_values", "reproduced", "deviation", "n", "interval_low", "interval_high", "values", "distance", "rule",
    "null", "status", "verdict", "explanation", "claim", "source", "note",
)  # fmt: skip
# What is made of several columns of the runs table.
DERIVED: dict[str, Callable[[Tidy], Any]] = {
    "own_margin": lambda tidy: depth_margin(tidy.runs["accuracy"], tidy.runs["own_frozen_acc"]),
    "bp_margin": lambda tidy: depth_margin(tidy.runs["accuracy"], tidy.runs["bp_frozen_acc"]),
    "by_accuracy": lambda tidy: withdrawals(tidy)["accuracy"],
    "by_cosine": lambda tidy: withdrawals(tidy)["cosine"],
}
Measured = Mapping[str, Mapping[int, Any]]  # run -> seed -> what its tables say
Records = Mapping[RunKey, Mapping[tuple[int, ...], Mapping[str, Any]]]  # run -> its layer, epoch -> row


@dataclass(frozen=True)
class Judgement:
    """The comparison of one published number with our runs.

    The distance of a mean from the published value is in units of the tolerance (kind value), or the logarithm of their
    ratio to the base of the factor that is allowed (kind magnitude): beyond -1..1 it is not reproduced. Other kinds
    have none.
    """

    verdict: str  # reproduced, same order, not reproduced or not run
    rule: str  # what was asked, with its numbers, and the answer
    reproduced: float | str | None = None  # the mean over seeds, the verdict of the seeds, or the runs in our order
    summary: Summary | None = None  # of a mean
    distance: float | None = None
    remark: str = ""


# --- what there is to compare with -----------------------------------------------------------------------------------


def read_results(folder: Path, published: Published) -> Tidy:
    """Read the runs that published numbers name.

    Args:
        folder: of results, whose audits are made tables, or of tidy tables, which are verified.

    Raises:
        AuditError: there are neither; a file is none, or of another run, or altered, or lacks a column.
    """
    if (folder / "audits").is_dir():
        asked = set(published.run_keys())
        audits = [path for path in sorted(folder.glob("audits/*/*/seed*.json")) if RunKey.of(path) in asked]
        histories = [folder / "trajectories" / f"{RunKey.of(path)}.csv" for path in audits]
        return tidy_of(read_audits(audits), list(filter(Path.exists, histories)))
    named = [name for name in settings_in(measured_folder(folder)) if name in published.experiments.settings]
    tidy = read_tidy(tables_of(folder, named, TIDY)) if named else tidy_of([], [])
    needed = {(known.table, known.column) for known in (QUANTITIES[entry.quantity] for entry in published.entries)}
    needed |= {("runs", "spec"), ("runs", "thresholds")}
    absent = {f"{table}.csv: {column}" for table, column in needed if column not in {*DERIVED, *getattr(tidy, table)}}
    if absent and named:
        raise AuditError(f"{folder}: missing the columns {listed(sorted(absent))}; audit the runs again.")
    return tidy


def read_explanations(folder: Path, published: Published) -> dict[str, str]:
    """Read why numbers are missed, by the key of their entry; empty if the folder has no such file.

    Raises:
        AuditError: it is no mapping, or names no entry.
    """
    path = folder / EXPLANATIONS
    found = load_config(path)[0] if path.exists() else {}
    known = {entry.key for entry in published.entries}
    if strange := sorted(found.keys() - known):
        raise unknown("entry", strange[0], known, where=str(path))
    return dict(found)


# --- the rows --------------------------------------------------------------------------------------------------------


def scorecard(published: Published, tidy: Tidy, explanations: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return one row per published number, columns `COLUMNS`, in the order of the file.

    A run of another specification than the published one is left out, and the note says so.

    Args:
        tidy: tables of the runs that there are; those that no entry names do not matter.
        explanations: why numbers are missed, by the key of their entry.
    """
    records = _records(published, tidy)
    excluded = {
        key: text for key, rows in records["runs", ()].items() if (text := _difference(published, key, rows[()]))
    }
    rows = [_row(entry, _measured(entry, records, excluded), excluded) for entry in published.entries]
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"layer": "Int64", "epoch": "Int64"})
    why = pd.Series([(explanations or {}).get(entry.key, UNEXPLAINED) for entry in published.entries], dtype=object)
    return table.assign(explanation=why.where(table["verdict"].isin((SAME, NOT_REPRODUCED)), ""))


def _records(published: Published, tidy: Tidy) -> dict[tuple[str, tuple[str, ...]], Records]:
    """Return the rows of every run that is named, by table and by the places that a quantity has."""
    asked, columns = set(published.run_keys()), {QUANTITIES[entry.quantity].column for entry in published.entries}
    derived = {name: _derived(name, tidy) for name in DERIVED if name in columns and len(tidy.runs)}
    tables = {"runs": tidy.runs.assign(**derived), "layers": tidy.layers, "trajectories": tidy.trajectories}
    kinds = dict.fromkeys((quantity.table, quantity.places) for quantity in QUANTITIES.values())
    return {(name, places): _by_run(tables[name], places, asked) for name, places in kinds}


def _derived(name: str, tidy: Tidy) -> Any:
    try:
        return DERIVED[name](tidy)
    except (TypeError, ValueError) as error:
        raise AuditError(
            f"runs.csv: no {name}: an accuracy is no number, or a flag neither true nor false ({error}); make the table"
            " again."
        ) from error


def _by_run(table: pd.DataFrame, places: tuple[str, ...], asked: set[RunKey]) -> Records:
    rows: dict[RunKey, dict[tuple[int, ...], Any]] = defaultdict(dict)
    for row in table.to_dict("records"):
        if (key := RunKey(*(row[name] for name in KEY))) in asked:
            place = tuple(row[name] for name in places)
            if place in rows[key] and len(places) == len({"epoch", "layer"} & set(table.columns)):
                raise AuditError(f"{key}: found it twice in a table; expected one row; make the table again.")
            rows[key][place] = row
    return rows


def _difference(published: Published, key: RunKey, row: Mapping[str, Any]) -> str:
    try:
        stopped = None if pd.isna(row["stopped_after"]) else int(row["stopped_after"])
        return published.difference(key, json.loads(row["spec"]), json.loads(row["thresholds"]), stopped)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise AuditError(
            f"runs.csv: {key}: its spec, thresholds or stopped_after is not as an audit has it ({error}); make the"
            " table again."
        ) from error


def _measured(entry: Entry, records: Mapping[Any, Records], excluded: Iterable[RunKey]) -> Measured:
    """Return what the tables say of an entry's runs, by run and seed; a run without rows has no seeds.

    Raises:
        AuditError: a number is a text.
    """
    quantity = QUANTITIES[entry.quantity]
    rows, place = records[quantity.table, quantity.places], tuple(getattr(entry, name) for name in quantity.places)
    found: dict[str, dict[int, Any]] = {key.run: {} for key in entry.run_keys()}
    for key in entry.run_keys():
        if key in rows and key in records["runs", ()] and key not in excluded:
            cell = rows[key].get(place, {}).get(quantity.column)
            try:
                found[key.run][key.seed] = _value(quantity, entry, cell, records["runs", ()][key][()].get("finite"))
            except ValueError as error:
                raise AuditError(
                    f"{quantity.table}.csv: {key}: found '{cell}' as {quantity.column}; expected a number; make the"
                    " table again."
                ) from error
    return found


def _value(quantity: Quantity, entry: Entry, value: Any, finite: Any) -> Any:
    """Return a cell as a number, NaN where there is none, or as an answer; on NaN norms no flag ever fires."""
    if entry.kind != "verdict":
        number = math.nan if value is None else float(value)
        return entry.brought(number) if isinstance(entry, Magnitude) else number
    if pd.isna(value):
        return NEVER if NEVER in quantity.answers and plain(finite) != "false" else "none"
    if isinstance(value, str):
        return value.partition("(")[0].strip()  # without the reasons of a verdict
    return f"{value:g}" if quantity.number else plain(bool(value))


def _row(entry: Entry, measured: Measured, excluded: Mapping[RunKey, str]) -> dict[str, Any]:
    judged, own = judge(entry, measured), _combined(entry, measured)
    n = min(map(len, own.values()))
    fewer = f"{n} of {len(entry.seeds)} seeds" if 0 < n < len(entry.seeds) else ""
    left_out = [f"left out: {key.run} seed {key.seed}, {excluded[key]}" for key in entry.run_keys() if key in excluded]
    low, high = (judged.summary and judged.summary.interval) or (None, None)
    return {
        **{name: getattr(entry, name) for name in ("setting", "quantity", "layer", "epoch", "kind", "claim", "source")},
        "run": entry.whose,
        "published": entry.published,
        "published_deviation": getattr(entry, "deviation", None),
        "published_n": entry.n,
        "published_values": _by_seed(entry.values),
        "reproduced": judged.reproduced,
        "deviation": judged.summary and judged.summary.deviation,
        "n": n,
        "interval_low": low,
        "interval_high": high,
        "values": _by_seed(own[entry.runs[0]]) if len(own) == 1 else "",
        "distance": judged.distance,
        "rule": judged.rule,
        "null": entry.chance,
        "status": entry.status,
        "verdict": judged.verdict,
        "note": "; ".join(filter(None, [judged.remark, entry.repeats, fewer, *left_out, entry.note])),
    }


def _by_seed(values: Mapping[int, Any]) -> str:
    told = {seed: plain("none" if pd.isna(value) else value) for seed, value in values.items()}
    return ", ".join(f"{seed}: {value if isinstance(value, str) else f'{value:.4g}'}" for seed, value in told.items())


# --- the rules -------------------------------------------------------------------------------------------------------


def judge(entry: Entry, measured: Measured) -> Judgement:
    """Return the verdict on one published number.

    Args:
        measured: what the tables say, by run and seed; a run without rows has no seeds.
    """
    rule = entry.rule()
    if missing := [run for run in measured if not measured[run]]:
        remark = f"no audit of {', '.join(missing)}" if len(missing) < len(measured) else ""
        return Judgement(NOT_RUN, rule, remark=remark)
    numbers = _combined(entry, measured)
    if not all(numbers.values()):
        return Judgement(NOT_RUN, rule, remark="no seed of every run")
    if entry.kind != "verdict" and (absent := _not_finite(numbers)):
        nowhere = all(math.isnan(number) for seeds in numbers.values() for number in seeds.values())
        return Judgement(NOT_REPRODUCED, rule, "none" if nowhere else None, remark=f"no finite number: {absent}")
    return RULES[entry.kind](entry, rule, {run: list(values.values()) for run, values in numbers.items()})


def _combined(entry: Entry, measured: Measured) -> Measured:
    """Return the numbers of an entry's runs, less those of another run or divided by them, seed by seed."""
    if not entry.other:
        common = set.intersection(*map(set, measured.values()))  # of an order: seeds that every run has
        return {
            run: {seed: found for seed, found in seeds.items() if seed in common} for run, seeds in measured.items()
        }
    (run,), (word, other) = entry.runs, entry.other
    combine = {"minus": sub, "over": _ratio}[word]
    both = [seed for seed in measured[run] if seed in measured[other]]
    return {run: {seed: combine(measured[run][seed], measured[other][seed]) for seed in both}}


def _ratio(one: float, other: float) -> float:
    return truediv(one, other) if other else math.nan


def _value_rule(entry: Value, rule: str, numbers: Mapping[str, list[float]]) -> Judgement:
    (own,) = map(summarise, numbers.values())
    difference, holds = own.mean - entry.value, entry.allows(own.mean)
    answer = f"{rule}: {abs(difference):.3g} {'<=' if holds else '>'} {entry.tolerance:g}"
    return Judgement(_outcome(holds), answer, own.mean, own, difference / entry.tolerance)


def _magnitude_rule(entry: Magnitude, rule: str, numbers: Mapping[str, list[float]]) -> Judgement:
    (own,) = map(summarise, numbers.values())
    ratio = own.mean / entry.value
    stray = [value for (values,) in [numbers.values()] for value in values if not entry.within(value, SAME_ORDER)]
    same = entry.within(own.mean, SAME_ORDER) and (stray or not entry.allows(own.mean))
    distance = math.log(ratio, entry.factor) if ratio > 0 else None
    outcome = SAME if same else _outcome(entry.allows(own.mean))
    remark = f"beyond a factor of {SAME_ORDER}: {len(stray)} of {own.n} seeds" if stray else ""
    return Judgement(outcome, f"{rule}: {ratio:.3g} times", own.mean, own, distance, remark)


def _bound_rule(entry: Bound, rule: str, numbers: Mapping[str, list[float]]) -> Judgement:
    (values,) = numbers.values()
    own, kept = summarise(values), sum(map(entry.allows, values))
    return Judgement(_outcome(kept == len(values)), f"{rule}: {kept}/{len(values)}", own.mean, own)


def _order_rule(entry: Entry, rule: str, numbers: Mapping[str, list[float]]) -> Judgement:
    means = {run: summarise(values).mean for run, values in numbers.items()}
    holds = all(_above(one, other) for one, other in pairwise(means.values()))
    ranked = sorted(means, key=means.__getitem__, reverse=True)
    signs = [" > " if _above(means[one], means[other]) else " = " for one, other in pairwise(ranked)]
    ours = "".join(run + sign for run, sign in zip(ranked, [*signs, ""]))
    return Judgement(_outcome(holds), f"{rule}: {', '.join(f'{run} {mean:.4g}' for run, mean in means.items())}", ours)


def _verdict_rule(entry: Verdict, rule: str, numbers: Mapping[str, list[Any]]) -> Judgement:
    (found,) = numbers.values()
    counts = Counter(found)
    shares = ", ".join(f"{value} {count}/{len(found)}" for value, count in counts.most_common())
    agreed = next(iter(counts)) if len(counts) == 1 else shares
    return Judgement(_outcome(all(map(entry.allows, found))), f"{rule}: {shares}", agreed)


RULES: dict[str, Callable[[Any, str, Mapping[str, list[Any]]], Judgement]] = {
    "value": _value_rule,
    "magnitude": _magnitude_rule,
    "bound": _bound_rule,
    "verdict": _verdict_rule,
    "order": _order_rule,
}


def _outcome(holds: bool) -> str:
    return REPRODUCED if holds else NOT_REPRODUCED


def _above(one: float, other: float) -> bool:
    """Compare means by ``>``, where the last bits decide nothing."""
    return not at_most(one, other)


def _not_finite(numbers: Mapping[str, Mapping[int, float]]) -> str:
    """Return where a number is absent or not finite."""
    return ", ".join(
        f"{run} seed {seed} {'has none' if math.isnan(number) else f'has {number}'}"
        for run, seeds in numbers.items()
        for seed, number in seeds.items()
        if not math.isfinite(number)
    )


# --- sums and claims -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum:
    """How many published numbers count, and of these how many were run, and with which verdict."""

    counted: int
    reproduced: int
    same: int
    missed: int
    uncounted: Mapping[str, int]  # by status

    @property
    def run(self) -> int:
        """Return how many of them were run."""
        return self.reproduced + self.same + self.missed

    @property
    def absent(self) -> int:
        """Return how many of them were not run."""
        return self.counted - self.run


def sum_of(rows: pd.DataFrame) -> Sum:
    """Return the sum over rows of a scorecard: what is uninformative, or repeats others, is not in it."""
    statuses, counts = Counter(rows["status"]), Counter(counted(rows)["verdict"])
    found = (counts[verdict] for verdict in (REPRODUCED, SAME, NOT_REPRODUCED))
    return Sum(statuses.pop(COUNTED, 0), *found, statuses)


def counted(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that count."""
    return rows[rows["status"] == COUNTED]


def claims(published: Published, rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per claim: name, sentence, verdict, and how many of its numbers count, were run and reproduced."""
    found = []
    for name, sentence in published.claims.items():
        own = rows[rows["claim"] == name]
        total = sum_of(own)
        numbers = {"numbers": total.counted, "run": total.run, "reproduced": total.reproduced}
        found.append({"claim": name, "sentence": sentence, "verdict": claim_verdict(counted(own))} | numbers)
    return pd.DataFrame(found, columns=["claim", "sentence", "verdict", "numbers", "run", "reproduced"])


def claim_verdict(rows: pd.DataFrame) -> str:
    """Return whether a claim holds, from those of its numbers that count.

    Bounds, verdicts and orders decide it where it has any, else all of its numbers. It holds if all that were run are
    reproduced and these are at least half of them; it does not hold if none that was run is reproduced.
    """
    qualitative = rows[rows["kind"].isin(QUALITATIVE)]
    deciding = rows if qualitative.empty else qualitative
    run = deciding.loc[deciding["verdict"] != NOT_RUN, "verdict"]
    if run.empty:
        return NOT_RUN
    hits = run == REPRODUCED
    if hits.all() and 2 * len(run) >= len(deciding):
        return HOLDS
    return IN_PART if hits.any() else FAILS
