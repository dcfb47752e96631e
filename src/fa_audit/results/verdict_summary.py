"""Every run's verdicts in a few lines of text, read from tidy tables. Imports no pandas: the
workflow starts fast.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fa_audit.experiments.paths import tidy_file
from fa_audit.protocol.over_seeds import verdict_over_seeds
from fa_audit.protocol.rules import RULES, verdicts_of

Row = Mapping[str, Any]


def verdict_lines(settings: Iterable[str]) -> Iterator[str]:
    """Yield a heading per setting and a line per run and verdict, of the settings whose tidy table
    exists.

    Where seeds of a run differ, or the verdict over them is borderline, that verdict follows on a
    line of its own.
    """
    for setting in settings:
        path = Path(tidy_file("runs", setting))
        if path.exists():
            yield from ("", f"verdicts in {setting} (three-check; four-check):")
            with path.open(encoding="utf-8", newline="") as stream:
                yield from _lines([row | verdicts_of(row) for row in csv.DictReader(stream)])


def _lines(rows: Iterable[Row]) -> Iterator[str]:
    runs: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        marked = (f"{row[rule]}{' (borderline)' * row[f'{rule}_borderline']}" for rule in RULES)
        runs[row["run"]]["; ".join(marked)].append(row)
    width = max([17, *map(len, runs)])
    for run, verdicts in runs.items():
        for verdict, members in verdicts.items():
            accuracy = f"accuracy {percent([row['accuracy'] for row in members])}"
            frozen = percent([row["own_frozen_acc"] for row in members])
            compared = f", {members[0]['baseline']} {frozen}" if frozen else ", no baseline"
            seeds = ", ".join(row["seed"] for row in members)
            yield f"  {run:<{width}} {verdict:<39} {accuracy}{compared}  seeds {seeds}"
        together = verdict_over_seeds(row for members in verdicts.values() for row in members)
        if together.seeds > 1 and (len(verdicts) > 1 or together.borderline):
            yield f"  {'':<{width}} over the {together.seeds} seeds: {together}"


def percent(fractions: Sequence[str]) -> str:
    """Return the range of fractions in percent; fields that are empty count as absent.

    >>> percent(["0.61", "0.68"]), percent(["0.985", "0.985"]), percent([""])
    ('61-68 %', '98 %', '')
    """
    known = [float(fraction) for fraction in fractions if fraction]
    ends = (
        sorted({f"{100 * end:.0f}" for end in (min(known), max(known))}, key=float) if known else []
    )
    return f"{'-'.join(ends)} %" if ends else ""
