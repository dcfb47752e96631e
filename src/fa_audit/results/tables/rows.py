"""Tables from the tidy table of runs: a row is one run of one setting, and its numbers summarise
all of its seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fa_audit.documents.formats import Number, Table
from fa_audit.experiments.paths import AT_INPUT
from fa_audit.protocol.checks import lettered
from fa_audit.protocol.over_seeds import verdict_over_seeds
from fa_audit.protocol.rules import RULES
from fa_audit.results.standings import of_run
from fa_audit.results.statistics import rank_runs, summarise
from fa_audit.results.tidy import Tidy, side_of

STATISTICS = ("mean", "deviation", "interval_low", "interval_high", "median", "max")
NETWORK = (
    "width",
    "depth",
    "epochs",
    "penalty",
)  # further fields of a row's specification in `values`
CREDITS = {  # suffix of the metrics' names -> sentence of the caption
    "": " Credits are compared at the blocks' outputs.",
    AT_INPUT: " Credits are compared at the blocks' inputs, as published ones: some audits have no others.",
}
INCOMPLETE = "A number that not all seeds have says how many do, as (2/3)."


@dataclass(frozen=True)
class Column:
    """A column of numbers; `decimals`, `signed` and `absent` as in `Number`."""

    heading: str
    quantity: str  # a column of the runs table
    statistic: str = "mean"  # of `STATISTICS`, over the seeds
    spread: (
        tuple[str, str] | tuple[()]
    ) = ()  # quantity and statistic of what is printed behind ±, if anything
    scale: float = 1  # of printed numbers; `Table.values` are not scaled
    decimals: int | None = None
    signed: bool = False
    absent: str = ""

    def at(self, side: str) -> Column:
        """Return the column of the same credit metric at a side of the blocks, as `side_of` names
        it.
        """
        spread = (f"{self.spread[0]}{side}", self.spread[1]) if self.spread else ()
        return replace(
            self,
            heading=f"{self.heading} at input",
            quantity=f"{self.quantity}{side}",
            spread=spread,
        )

    def cell(self, group: pd.DataFrame, seeds: int) -> Number:
        """Return the printed number of one row: of the seeds in `group`, where its setting has so
        many `seeds`.
        """
        summary = summary_of(group[self.quantity])
        deviation = summary_of(group[self.spread[0]])[self.spread[1]] if self.spread else None
        value, deviation = (
            None if x is None else self.scale * x for x in (summary[self.statistic], deviation)
        )
        return Number(
            value, self.decimals, deviation, self.signed, summary["n"], seeds, self.absent
        )


class WithInterval(Column):
    """A column of means, each with its 95 % t-interval over the seeds where there are several."""

    def cell(self, group: pd.DataFrame, seeds: int) -> Number | str:  # type: ignore[override]
        """Return the printed text of one row; arguments as for `Column.cell`."""
        summary = summary_of(group[self.quantity])
        if summary["interval_low"] is None:
            return super().cell(group, seeds)
        numbers = (self.scale * summary[name] for name in ("mean", "interval_low", "interval_high"))
        return "{} [{}, {}]".format(
            *(f"{number:{'+' * self.signed}.{self.decimals}f}" for number in numbers)
        )


@dataclass(frozen=True)
class Made:
    """A column whose cells a function makes from the seeds of a row and the number of seeds of its
    setting.
    """

    heading: str
    make: Callable[[pd.DataFrame, int], str | Number]

    def cell(self, group: pd.DataFrame, seeds: int) -> str | Number:
        """Return the printed cell of one row; arguments as for `Column.cell`."""
        return self.make(group, seeds)


def three_check(group: pd.DataFrame, seeds: int) -> str:
    """Return the three-check verdict of all seeds, or how many seeds got which, the most frequent
    first.
    """
    found = group["three_check"].astype(object).fillna("no verdict")
    marks = group["three_check_borderline"].map({True: " (borderline)"}).fillna("")
    counts = Counter(found + marks)
    if list(counts.values()) == [seeds]:
        return next(iter(counts))
    return ",\n".join(f"{verdict} {count}/{seeds}" for verdict, count in counts.most_common())


def four_check(group: pd.DataFrame, seeds: int) -> str:
    """Return one four-check verdict for all seeds, with its count, and what would settle a
    borderline one.
    """
    return verdict_over_seeds(group.to_dict("records")).text(seeds).replace("; ", ";\n")


THREE_CHECK, FOUR_CHECK = Made("three-check", three_check), Made("four-check", four_check)
AnyColumn = Column | Made


def by_setting(tidy: Tidy) -> list[tuple[str, str]]:
    """Return every (setting, run): settings in their order, in each the runs by mean accuracy, best
    first.
    """
    return [(setting, run) for setting in tidy.settings for run in rank_runs(tidy.of(setting).runs)]


def run_table(
    tidy: Tidy,
    columns: Sequence[AnyColumn],
    *,
    rows: Iterable[tuple[str, str]],
    caption: str,
    labels: Mapping[str, str],
    varied: Sequence[str] = (),
) -> Table:
    """Return a table with a row for every (setting, run), led by the setting where there are
    several, and the run.

    ``values`` is tidy, one number a row: ``setting, run, label``, `NETWORK`, ``quantity, statistic,
    seed, n, value, verdict``. Statistic ``seed`` is one seed's own value; the others (`STATISTICS`;
    deviation with divisor n - 1, the 95 % t-interval) are over the `n` seeds that have one.
    Accuracies are fractions. Both verdicts are among the quantities, whatever is printed; their
    text is in its own column. Statistic ``over_seeds`` is the four-check verdict over all seeds,
    `n` of which agree; ``<check>_distance`` is what it is formed of (see docs/protocol.md), and its
    statistic ``seeds_to_settle`` the number of seeds that would settle a borderline check.

    Args:
        labels: how to print runs and settings; their names where they are not listed.
        varied: columns of the runs table that distinguish the settings and are printed in place of
            their labels; they are in ``values``, too.
    """
    plain = [column for column in columns if isinstance(column, Column)]
    of_credits = {
        column.quantity for column in plain if f"{column.quantity}{AT_INPUT}" in tidy.runs
    }
    if side := side_of(tidy.runs, *of_credits):
        columns = [
            column.at(side) if getattr(column, "quantity", "") in of_credits else column
            for column in columns
        ]
    seeds = tidy.runs.groupby("setting")["seed"].nunique().loc[list(tidy.settings)]
    several = len(tidy.settings) > 1 and not varied
    values, cells = [], []
    for setting, run in rows:
        group = of_run(tidy, setting, run)
        label = label_of(run, group, labels)
        first = (labels.get(setting, setting), label)[0 if several else 1 :]
        cells.append((*first, *(_option(group[name].iloc[0]) for name in varied),
                      *(column.cell(group, seeds[setting]) for column in columns)))  # fmt: skip
        values += _values(group, label, columns, dict.fromkeys((*NETWORK, *varied)))
    return Table(
        caption=f"{caption}{CREDITS[side] if of_credits else ''} {seeds_text(seeds.to_dict(), labels)} {INCOMPLETE}",
        columns=(
            *("setting", "run")[0 if several else 1 :],
            *varied,
            *(column.heading for column in columns),
        ),
        rows=tuple(cells),
        values=pd.DataFrame(values).astype({"seed": "Int64", "value": float}),
    )


def _option(value: Any) -> str | Number:
    """Return how one of the varied values is printed: text, yes or no, or a number."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return Number(value, decimals=0 if isinstance(value, int | np.integer) else None)


def label_of(name: str, group: pd.DataFrame, labels: Mapping[str, str]) -> str:
    """Return how a run or setting is printed; stopped ones with the number of their stopped
    networks.
    """
    stopped = int(group["stopped_after"].notna().sum())
    label = labels.get(name, name)
    return f"{label} (stopped early {stopped}/{len(group)})" if stopped else label


def seeds_text(seeds: Mapping[str, int], labels: Mapping[str, str]) -> str:
    """Return how many seeds the settings have, for a caption: once if all have as many."""
    of: dict[int, list[str]] = {}
    for setting, count in seeds.items():
        of.setdefault(count, []).append(labels.get(setting, setting))
    if len(of) == 1:
        return f"Seeds: n = {next(iter(of))}."
    return (
        "Seeds: "
        + "; ".join(f"n = {count} in {', '.join(named)}" for count, named in of.items())
        + "."
    )


def summary_of(values: pd.Series) -> dict[str, Any]:
    """Return `STATISTICS` and n of the seeds that were measured; None where a statistic does not
    exist.

    An infinite value leaves a mean (infinite, if all infinite ones have one sign), a median and a
    maximum.
    """
    measured = values.astype(float).dropna().to_numpy()
    summary: dict[str, Any] = {"n": measured.size} | dict.fromkeys(STATISTICS)
    if not measured.size:
        return summary
    with np.errstate(invalid="ignore"):  # inf - inf
        summary |= {"mean": measured.mean(), "median": np.median(measured), "max": measured.max()}
    if np.isfinite(measured).all():
        found = summarise(measured)
        low, high = found.interval or (None, None)
        summary |= {"deviation": found.deviation, "interval_low": low, "interval_high": high}
    return summary


def _values(
    group: pd.DataFrame, label: str, columns: Sequence[AnyColumn], network: Iterable[str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``values`` for one row of the table."""
    key = group.iloc[0]
    common = (
        {name: key[name] for name in ("setting", "run")}
        | {"label": label}
        | {name: key[name] for name in network}
    )
    numbers = [column for column in columns if isinstance(column, Column)]
    shown = [name for column in numbers for name in (column.quantity, *column.spread[:1])]
    for quantity in dict.fromkeys(
        [*shown, *(f"{check}_distance" for check in lettered().values())]
    ):
        named = common | {"quantity": quantity}
        for seed, value in zip(group["seed"], group[quantity]):
            yield named | {
                "statistic": "seed",
                "seed": seed,
                "n": int(pd.notna(value)),
                "value": value,
            }
        summary = summary_of(group[quantity])
        for statistic in STATISTICS:
            yield named | {"statistic": statistic, "n": summary["n"], "value": summary[statistic]}
    together = verdict_over_seeds(group.to_dict("records"))
    yield common | {
        "quantity": "four_check",
        "statistic": "over_seeds",
        "n": together.count,
        "verdict": str(together),
    }
    for letter, check in lettered().items():
        settles = {"statistic": "seeds_to_settle", "value": together.checks[letter].settles}
        yield common | {"quantity": f"{check}_distance", "n": together.checks[letter].n} | settles
    for verdict in RULES:
        for seed, text in zip(group["seed"], group[verdict]):
            yield common | {"quantity": verdict, "statistic": "seed", "seed": seed,
                            "n": int(pd.notna(text)), "verdict": text}  # fmt: skip
