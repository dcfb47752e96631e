"""The main audit: one row per run with accuracy, frozen baselines, scale, reference gradient and both verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fa_audit.statistics import rank_runs, summarise
from fa_audit.tables.formats import Number, Table
from fa_audit.thresholds import Thresholds
from fa_audit.tidy import Tidy

COLUMNS = (
    "run", "seeds", "accuracy (%)", "own frozen (%)", "margin (points)", "bp+frozen (%)",
    "max growth", "median ||g_L||", "three-check", "four-check",
)  # fmt: skip
NOTE = (
    "Accuracy: mean ± sample standard deviation over seeds; frozen baselines: means over seeds; margin: accuracy "
    "minus own frozen baseline, seed by seed; growth: largest over seeds; ||g_L||: median over seeds."
)
QUANTITIES = ("accuracy", "own_frozen_acc", "margin", "bp_frozen_acc", "max_growth", "grad_norm_last")
VERDICTS = ("three_check", "four_check")
STATISTICS = ("mean", "deviation", "interval_low", "interval_high", "median", "max")


def build(tidy: Tidy, *, labels: Mapping[str, str], title: str, thresholds: Thresholds | None = None) -> Table:
    """The table of one setting, best mean accuracy first.

    ``values`` is tidy, one number a row: ``run, label, quantity, statistic, seed, n, value, verdict``.
    Statistic ``seed`` is one seed's own value; the others (`STATISTICS`; the interval is the 95 % t-interval) are
    over the `n` seeds that have one. Accuracies and margins are fractions. Verdicts stand in their own column.

    Args:
        tidy: one setting.
        labels: how to print a run; its name where it is not listed.
        title: the beginning of the caption.
        thresholds: not used, verdicts are those of the audits; every table is called alike.
    """
    runs = tidy.runs.assign(margin=tidy.runs["accuracy"] - tidy.runs["own_frozen_acc"])
    groups = [(run, labels.get(run, run), runs[runs["run"] == run].sort_values("seed")) for run in rank_runs(runs)]
    values = [row for run, label, group in groups for row in _values(run, label, group)]
    return Table(
        caption=f"{title}. {NOTE}",
        columns=COLUMNS,
        rows=tuple(_row(label, group) for _, label, group in groups),
        values=pd.DataFrame(values).astype({"seed": "Int64", "value": float}),
    )


def _row(label: str, group: pd.DataFrame) -> tuple[str | Number, ...]:
    """The printed cells of one run."""
    summaries = {quantity: _summary(group[quantity]) for quantity in QUANTITIES}

    def number(quantity: str, statistic: str, scale: float = 1, **layout: Any) -> Number:
        summary = summaries[quantity]
        value = summary[statistic]
        return Number(None if value is None else scale * value, measured=summary["n"], of=len(group), **layout)

    deviation = summaries["accuracy"]["deviation"]
    stopped = int(group["stopped_after"].notna().sum())
    return (
        f"{label} (stopped early {stopped}/{len(group)})" if stopped else label,
        Number(len(group), decimals=0),
        number("accuracy", "mean", 100, decimals=1, deviation=None if deviation is None else 100 * deviation),
        number("own_frozen_acc", "mean", 100, decimals=1),
        number("margin", "mean", 100, decimals=1, signed=True),
        number("bp_frozen_acc", "mean", 100, decimals=1),
        number("max_growth", "max"),
        number("grad_norm_last", "median"),
        *(_agreement(group[verdict]) for verdict in VERDICTS),
    )


def _summary(values: pd.Series) -> dict[str, Any]:
    """`STATISTICS` and n of the seeds that were measured; None where a statistic does not exist."""
    measured = values.dropna().to_numpy(float)
    summary: dict[str, Any] = {"n": measured.size} | dict.fromkeys(STATISTICS)
    if measured.size:
        summary |= {"median": float(np.median(measured)), "max": float(measured.max())}
    if measured.size and np.isfinite(measured).all():
        found = summarise(measured)
        low, high = found.interval or (None, None)
        summary |= {"mean": found.mean, "deviation": found.deviation, "interval_low": low, "interval_high": high}
    return summary


def _agreement(verdicts: pd.Series) -> str:
    """The verdict of all seeds, or how many seeds got which, the most frequent first."""
    counts = Counter(verdicts.fillna("no verdict"))
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{verdict} {count}/{len(verdicts)}" for verdict, count in counts.most_common())


def _values(run: str, label: str, group: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The rows of ``values`` for one run."""
    for quantity in QUANTITIES:
        common = {"run": run, "label": label, "quantity": quantity}
        for seed, value in zip(group["seed"], group[quantity]):
            yield common | {"statistic": "seed", "seed": seed, "n": int(pd.notna(value)), "value": value}
        summary = _summary(group[quantity])
        for statistic in STATISTICS:
            yield common | {"statistic": statistic, "n": summary["n"], "value": summary[statistic]}
    for verdict in VERDICTS:
        for seed, text in zip(group["seed"], group[verdict]):
            yield {"run": run, "label": label, "quantity": verdict, "statistic": "seed", "seed": seed,
                   "n": int(pd.notna(text)), "verdict": text}  # fmt: skip
