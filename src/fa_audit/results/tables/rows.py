"""Build tables whose rows are runs of a setting, and whose numbers summarise seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd

from fa_audit.core.measured import AT_INPUT
from fa_audit.documents.formats import Number, Table
from fa_audit.protocol.judge import FOUR, NON_FINITE, THREE
from fa_audit.results.outcomes import firing
from fa_audit.results.statistics import rank_runs, summarise
from fa_audit.results.tidy import Tidy, judged

STATISTICS = ("n", "mean", "deviation", "low", "high", "median", "max")
INCOMPLETE = "n: number of seeds. After a number, (2/3) means that only 2 of 3 seeds have it."
CREDITS = " Credits are compared at the blocks' inputs, as published."


@dataclass(frozen=True)
class Column:
    """A column of numbers: a statistic over the seeds of each row."""

    heading: str
    quantity: str  # a column of the runs table
    statistic: Literal["mean", "median", "max"] = "mean"
    spread: Literal["", "deviation", "interval"] = ""  # printed after the number
    scale: float = 1  # factor of the printed numbers; the CSV has them unscaled
    decimals: int | None = None
    signed: bool = False
    absent: str = ""

    def cell(self, group: pd.DataFrame) -> Number:
        """Return the printed cell of a row: the statistic over its seeds."""
        found = _summary_of(group[self.quantity])
        scaled = {name: self.scale * value for name, value in found.items() if value is not None}
        spread: dict[str, Any] = {}
        if self.spread == "deviation":
            spread["deviation"] = scaled.get("deviation")
        elif self.spread and "low" in scaled:
            spread["interval"] = scaled["low"], scaled["high"]
        return Number(
            scaled.get(self.statistic),
            decimals=self.decimals,
            signed=self.signed,
            measured=found["n"],
            of=len(group),
            absent=self.absent,
            **spread,
        )

    def values(self, group: pd.DataFrame) -> dict[str, Any]:
        """Return one row's values for the CSV: `STATISTICS` in full precision."""
        found = _summary_of(group[self.quantity])
        return {f"{self.quantity}_{name}": value for name, value in found.items()}


@dataclass(frozen=True)
class TextColumn:
    """A column of texts, computed by a function of each row's seeds."""

    heading: str
    cell: Callable[[pd.DataFrame], str | Number]

    def values(self, group: pd.DataFrame) -> dict[str, Any]:
        """Return one row's value for the CSV."""
        found = self.cell(group)
        return {self.heading: found.value if isinstance(found, Number) else found}


def _four_check(group: pd.DataFrame) -> str:
    found = judged(group)
    return "; ".join(filter(None, [found.text(FOUR), found.settling]))


def _fires(group: pd.DataFrame) -> str:
    judgement = judged(group)
    fires = firing(judgement)
    if not judgement.finite:
        fires.append(NON_FINITE)
    text = " ".join(fires) or "none"
    checks = [judgement[name] for name in FOUR.checks]
    absent = [check.kind.label for check in checks if check.fires is None]
    return f"{text} ({' '.join(absent)} not evaluated)" if absent else text


def _checks(group: pd.DataFrame) -> str:
    judgement, texts = judged(group), []
    for name in FOUR.checks:
        check = judgement[name]
        scale = check.kind.scale
        digits = 1 if scale > 1 else 2
        text = f"{check.kind.label} {check.outcome}"
        if check.distance is not None:
            text += f" {scale * check.distance:+.{digits}f}"
        if check.around is not None:
            low, high = check.around
            text += f" [{scale * low:+.{digits}f}, {scale * high:+.{digits}f}]"
        if check.count:
            text += f" (fires in {check.count}/{len(group)})"
        texts.append(text)
    if not judgement.finite:
        texts.append(NON_FINITE)
    return "; ".join(texts)


FIRES = TextColumn("fires", _fires)
CHECKS = TextColumn("checks", _checks)
N = TextColumn("n", lambda group: Number(len(group), decimals=0))
# The verdict over all seeds, with the number of seeds that share it.
THREE_CHECK = TextColumn("three-check", lambda group: judged(group).text(THREE))
FOUR_CHECK = TextColumn("four-check", _four_check)


def by_setting(tidy: Tidy) -> list[tuple[str, str]]:
    """Return every (setting, run): settings in order, each with its most accurate run first."""
    rows: list[tuple[str, str]] = []
    for setting in tidy.settings:
        rows += product([setting], rank_runs(tidy.of(setting).runs))
    return rows


def run_table(
    tidy: Tidy,
    columns: Sequence[Column | TextColumn],
    *,
    caption: str,
    labels: Mapping[str, str],
    rows: Iterable[tuple[str, str]] | None = None,
) -> Table:
    """Return a table with a row for every (setting, run).

    Args:
        rows: setting and run of every row; default `by_setting`.
        labels: printed names of runs and settings; default their own names.
    """
    groups = dict(list(tidy.runs.sort_values("seed").groupby(["setting", "run"])))
    all_columns = [N, *columns]
    cells, values = [], []
    for setting, run in rows or by_setting(tidy):
        group = groups[setting, run]
        stopped = int(group["stopped_after"].notna().sum())
        name = labels.get(run, run)
        if stopped:
            name += f" (stopped early {stopped}/{len(group)})"
        shown = [column.cell(group) for column in all_columns]
        cells.append([labels.get(setting, setting), name, *shown])
        found: dict[str, Any] = {"setting": setting, "run": run}
        for column in all_columns:
            found |= column.values(group)
        values.append(found)
    headings = ["setting", "run", *(column.heading for column in all_columns)]
    # Leave out the column of settings if there is only one setting.
    first = 0 if len(tidy.settings) > 1 else 1
    has_credits = any(isinstance(c, Column) and c.quantity.endswith(AT_INPUT) for c in columns)
    return Table(
        f"{caption}{CREDITS * has_credits} {INCOMPLETE}",
        tuple(headings[first:]),
        tuple(tuple(row[first:]) for row in cells),
        pd.DataFrame(values),
    )


def _summary_of(values: pd.Series) -> dict[str, Any]:
    """Return `STATISTICS` of the measured seeds; None for a statistic that does not exist.

    ``low`` and ``high`` are the ends of the 95 % t-interval. If a value is infinite, only mean,
    median and maximum exist.
    """
    measured = values.dropna().to_numpy()
    summary: dict[str, Any] = dict.fromkeys(STATISTICS) | {"n": measured.size}
    if not measured.size:
        return summary
    with np.errstate(invalid="ignore"):  # inf - inf
        summary |= {"mean": measured.mean(), "median": np.median(measured), "max": measured.max()}
    if np.isfinite(measured).all():
        found = summarise(measured)
        low, high = found.interval or (None, None)
        summary |= {"deviation": found.deviation, "low": low, "high": high}
    return summary
