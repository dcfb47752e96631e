"""Compare every published number with the mean of our audits, by the rule of its kind; as text. Imports no torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.core.files import write_text
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.published import Entry, Published, quantity_of
from fa_audit.results.outcomes import four_check
from fa_audit.results.statistics import Summary, summarise
from fa_audit.results.tables import formats
from fa_audit.results.tables.formats import Table
from fa_audit.results.tidy import KEY, read_audits

FACTOR = 10  # of a magnitude
STANDARD_ERRORS = 3  # of a difference of two means
REPRODUCED, NOT_REPRODUCED, NOT_RUN = "reproduced", "not reproduced", "not run"
COLUMNS = (
    "setting", "quantity", "run", "layer", "kind", "published", "published_deviation", "published_n", "reproduced",
    "deviation", "n", "interval_low", "interval_high", "distance", "rule", "verdict", "source", "note",
)  # fmt: skip
HEADINGS = ("quantity", "run", "published", "reproduced", "95 % interval", "rule", "verdict", "note")
Measured = Mapping[str, Mapping[int, Any]]  # run -> seed -> what its audit says


@dataclass(frozen=True)
class Judgement:
    """The comparison of one published number with our audits.

    The distance of a mean from the published value is in units of the margin that is allowed (kind value), or the
    logarithm of their ratio to the base of the factor that is allowed (kind magnitude): beyond -1..1 it is not
    reproduced. Other kinds have none.
    """

    verdict: str  # reproduced, not reproduced or not run
    rule: str  # what was asked, with its numbers, and the answer
    reproduced: float | str | None = None  # the mean over seeds, the verdict of the seeds, or the runs in our order
    summary: Summary | None = None  # of a mean
    distance: float | None = None
    remark: str = ""


def audits_in(folder: str | Path, published: Published) -> list[dict[str, Any]]:
    """Read the audits in a folder of results that published numbers are compared with.

    Raises:
        AuditError: a file is no audit, or its run is not the one that its path names.
    """
    asked = {key for entry in published.entries for key in entry.run_keys()}
    files = sorted(Path(folder).glob("audits/*/*/seed*.json"))
    return read_audits([path for path in files if RunKey.of(path) in asked])


def scorecard(published: Published, audits: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return one row per published number, columns `COLUMNS`, in the order of the file.

    An audit of another specification than the published one is left out, and the note says so.

    Args:
        audits: the audits that exist, of runs that entries name.
    """
    found = {tuple(audit[key] for key in KEY): audit for audit in audits}
    excluded = {key: text for key, audit in found.items() if (text := published.difference(audit))}
    return pd.DataFrame([_row(entry, found, excluded) for entry in published.entries], columns=COLUMNS).astype(
        {"layer": "Int64"}
    )


def _row(entry: Entry, found: Mapping[Any, Mapping[str, Any]], excluded: Mapping[Any, str]) -> dict[str, Any]:
    usable = [key for key in entry.run_keys() if key in found and key not in excluded]
    measured: dict[str, dict[int, Any]] = {run: {} for run in entry.runs}
    for key in usable:
        measured[key[1]][key[2]] = _quantity(entry, found[key])
    judged = judge(entry, measured)
    n = min(map(len, measured.values()))
    fewer = f"{n} of {len(entry.seeds)} seeds" if 0 < n < len(entry.seeds) else ""
    left_out = [f"left out: {key[1]} seed {key[2]}, {excluded[key]}" for key in entry.run_keys() if key in excluded]
    low, high = (judged.summary and judged.summary.interval) or (None, None)
    return {
        **{name: getattr(entry, name) for name in ("setting", "quantity", "layer", "kind", "source")},
        "run": " > ".join(entry.runs),
        "published": " > ".join(entry.runs) if entry.kind == "order" else _plain(entry.value),
        "published_deviation": entry.deviation,
        "published_n": entry.n,
        "reproduced": judged.reproduced,
        "deviation": judged.summary and judged.summary.deviation,
        "n": n,
        "interval_low": low,
        "interval_high": high,
        "distance": judged.distance,
        "rule": judged.rule,
        "verdict": judged.verdict,
        "note": "; ".join(filter(None, [judged.remark, fewer, *left_out, entry.note])),
    }


def _quantity(entry: Entry, audit: Mapping[str, Any]) -> Any:
    if entry.quantity == "four_check_verdict":
        return four_check(audit)
    return quantity_of(audit, entry.quantity, entry.layer)


def _plain(value: Any) -> Any:
    """Return a flag as text; a number or a text as it is."""
    return str(value).lower() if isinstance(value, bool) or value is None else value


# --- the rules -----------------------------------------------------------------------------------------------------


def judge(entry: Entry, measured: Measured) -> Judgement:
    """Return the verdict on one published number.

    Args:
        measured: what the audits say, by run and seed; a run without audits has no seeds.
    """
    rule = rule_of(entry)
    if missing := [run for run in entry.runs if not measured.get(run)]:
        remark = f"no audit of {', '.join(missing)}" if len(missing) < len(entry.runs) else ""
        return Judgement(NOT_RUN, rule, remark=remark)
    if entry.kind == "verdict":
        return _verdict(entry, rule, [_plain(value) for value in measured[entry.runs[0]].values()])
    numbers = {run: {seed: _number(value) for seed, value in measured[run].items()} for run in entry.runs}
    if absent := _not_finite(numbers):
        return Judgement(NOT_REPRODUCED, rule, remark=f"no finite number: {absent}")
    return NUMERIC[entry.kind](entry, rule, {run: summarise(values.values()) for run, values in numbers.items()})


def rule_of(entry: Entry) -> str:
    """Return the condition on our audits, with the published numbers; s and n are ours."""
    if entry.kind == "value":
        spread = f"{entry.deviation or 0:g}^2/{entry.n} + s^2/n"
        return f"|mean - {entry.value:g}| <= max({entry.tolerance:g}, {STANDARD_ERRORS} sqrt({spread}))"
    if entry.kind == "magnitude":
        return f"mean within a factor of {FACTOR} of {entry.value:g}"
    return "means fall in this order" if entry.kind == "order" else f"every seed {_plain(entry.value)}"


def margin(entry: Entry, own: Summary) -> float:
    """Return the allowed distance from the published value: the tolerance or three standard errors of the difference.

    A deviation that is not known counts as 0.
    """
    variance = (entry.deviation or 0) ** 2 / entry.n + (own.deviation or 0) ** 2 / own.n
    return max(entry.tolerance or 0, STANDARD_ERRORS * math.sqrt(variance))


def _value(entry: Entry, rule: str, summaries: Mapping[str, Summary]) -> Judgement:
    (own,) = summaries.values()
    difference, allowed = own.mean - entry.value, margin(entry, own)
    holds = _at_most(abs(difference), allowed)
    answer = f"{rule}: {abs(difference):.3g} {'<=' if holds else '>'} {allowed:.3g}"
    return Judgement(_outcome(holds), answer, own.mean, own, difference / allowed)


def _magnitude(entry: Entry, rule: str, summaries: Mapping[str, Summary]) -> Judgement:
    (own,) = summaries.values()
    ratio = own.mean / entry.value
    holds = ratio > 0 and _at_most(max(ratio, 1 / ratio), FACTOR)
    distance = math.log(ratio, FACTOR) if ratio > 0 else None
    return Judgement(_outcome(holds), f"{rule}: {ratio:.3g} times", own.mean, own, distance)


def _order(entry: Entry, rule: str, summaries: Mapping[str, Summary]) -> Judgement:
    means = {run: summary.mean for run, summary in summaries.items()}
    holds = all(_above(one, other) for one, other in pairwise(means.values()))
    ranked = sorted(means, key=means.__getitem__, reverse=True)
    signs = [" > " if _above(means[one], means[other]) else " = " for one, other in pairwise(ranked)]
    ours = "".join(run + sign for run, sign in zip(ranked, [*signs, ""]))
    return Judgement(_outcome(holds), f"{rule}: {', '.join(f'{run} {mean:.4g}' for run, mean in means.items())}", ours)


def _verdict(entry: Entry, rule: str, found: list[Any]) -> Judgement:
    counts = Counter(found)
    shares = ", ".join(f"{value} {count}/{len(found)}" for value, count in counts.most_common())
    agreed = next(iter(counts)) if len(counts) == 1 else shares
    return Judgement(_outcome(set(counts) == {_plain(entry.value)}), f"{rule}: {shares}", agreed)


NUMERIC: dict[str, Callable[[Entry, str, Mapping[str, Summary]], Judgement]] = {
    "value": _value,
    "magnitude": _magnitude,
    "order": _order,
}


def _outcome(holds: bool) -> str:
    return REPRODUCED if holds else NOT_REPRODUCED


def _at_most(number: float, limit: float) -> bool:
    """Compare decimal numbers by ``<=``: 0.635 - 0.615 is 0.02, whatever binary fractions make of it."""
    return number <= limit or math.isclose(number, limit, rel_tol=1e-9)


def _above(one: float, other: float) -> bool:
    """Compare means by ``>``, where the last bits decide nothing."""
    return not _at_most(one, other)


def _number(value: Any) -> float:
    """Return a measured number; audits write those that are not finite as text, and absent ones as null."""
    return math.nan if value is None else float(value)


def _not_finite(numbers: Mapping[str, Mapping[int, float]]) -> str:
    """Return where a number is absent or not finite."""
    return ", ".join(
        f"{run} seed {seed} {'has none' if math.isnan(number) else f'has {number}'}"
        for run, seeds in numbers.items()
        for seed, number in seeds.items()
        if not math.isfinite(number)
    )


# --- its texts -----------------------------------------------------------------------------------------------------


def summary_line(rows: pd.DataFrame) -> str:
    """Return how many numbers were reproduced, of all and of those that were run."""
    counts = Counter(rows["verdict"])
    hit, missed, absent = (counts[verdict] for verdict in (REPRODUCED, NOT_REPRODUCED, NOT_RUN))
    return (
        f"{hit} of {len(rows)} reproduced, {missed} not reproduced, {absent} not run; "
        f"of those that were run: {hit}/{hit + missed}"
    )


def made_by(audits: Iterable[Mapping[str, Any]]) -> str:
    """Return which code trained the networks behind a scorecard, and on which machine, with the number of audits."""
    counts = Counter((audit.get("commit", "unknown"), audit.get("device", "unknown device")) for audit in audits)
    parts = [f"{count} trained by commit {commit} on {device}" for (commit, device), count in sorted(counts.items())]
    return f"Audits of networks: {'; '.join(parts) or 'none'}."


def write_scorecard(rows: pd.DataFrame, remark: str, paths: Iterable[str | Path]) -> None:
    """Write the scorecard to paths that end in .csv, .md and .html."""
    texts = {".csv": rows.to_csv(index=False), ".md": to_markdown(rows, remark), ".html": to_html(rows, remark)}
    for path in paths:
        write_text(path, texts[Path(path).suffix])


def to_markdown(rows: pd.DataFrame, remark: str) -> str:
    """Return the summary of a scorecard's rows, a remark, and a table for every setting."""
    parts = [
        formats.to_markdown(Table(f"{setting}: {summary_line(group)}", HEADINGS, _text_rows(group), group))
        for setting, group in rows.groupby("setting", sort=False)
    ]
    head = f"{summary_line(rows)}.\n\n{formats.escape_markdown(remark)}\n"
    return "\n".join([head, *(f"## {part}" for part in parts)])


def to_html(rows: pd.DataFrame, remark: str) -> str:
    """Return a page with one table of everything, for the report."""
    cells = tuple((setting, *row) for setting, row in zip(rows["setting"], _text_rows(rows)))
    return formats.to_html(Table(f"{summary_line(rows)}. {remark}", ("setting", *HEADINGS), cells, rows))


def _text_rows(rows: pd.DataFrame) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(_text_row(row)) for row in rows.to_dict("records"))


def _text_row(row: dict[str, Any]) -> list[str]:
    layer = "" if pd.isna(row["layer"]) else f" (layer {row['layer']})"
    interval = "" if pd.isna(row["interval_low"]) else f"{row['interval_low']:.4g} to {row['interval_high']:.4g}"
    return [
        row["quantity"] + layer,
        row["run"],
        _mean_text(row["published"], row["published_deviation"], row["published_n"]),
        _mean_text(row["reproduced"], row["deviation"], row["n"]),
        *(interval, row["rule"], row["verdict"], row["note"]),
    ]


def _mean_text(value: Any, deviation: float | None, n: int) -> str:
    """Return a mean or a verdict with its n; nothing without a value."""
    if pd.isna(value):
        return ""
    spread = "" if pd.isna(deviation) else f" ± {deviation:.2g}"
    return f"{value if isinstance(value, str) else f'{value:.4g}'}{spread} (n = {n})"
