"""Print every run's verdicts, one line a run, from tidy tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from fa_audit.experiments.paths import tidy_file
from fa_audit.protocol.judge import FOUR, THREE
from fa_audit.results.tidy import judged, read_table


def verdict_lines(settings: Iterable[str]) -> Iterator[str]:
    """Yield a heading per setting and a line per run, of the settings whose tidy table exists."""
    for setting in settings:
        path = Path(tidy_file("runs", setting))
        if path.exists():
            yield from ("", f"verdicts in {setting} (three-check; four-check):")
            yield from _lines(read_table(path))


def _lines(runs: pd.DataFrame) -> Iterator[str]:
    width = max(17, runs["run"].str.len().max())
    for run, seeds in runs.groupby("run", sort=False):
        found = judged(seeds)
        verdicts = f"{found.text(THREE)}; {found.text(FOUR)}"
        compared = "no baseline"
        frozen = percent(seeds["own_frozen_acc"])
        if frozen:
            compared = f"{seeds['baseline'].iloc[0]} {frozen}"
        accuracy = f"accuracy {percent(seeds['accuracy'])}"
        labels = ", ".join(map(str, seeds["seed"]))
        yield f"  {run:<{width}} {verdicts:<39} {accuracy}, {compared}  seeds {labels}"
        if found.settling:
            yield f"  {'':<{width}} {found.settling}"


def percent(fractions: pd.Series) -> str:
    """Return the range of fractions in percent; empty without any.

    >>> percent(pd.Series([0.61, 0.68])), percent(pd.Series([0.985, 0.985])), percent(pd.Series([]))
    ('61-68 %', '98 %', '')
    """
    known = fractions.dropna()
    if known.empty:
        return ""
    ends = dict.fromkeys(f"{100 * end:.0f}" for end in (known.min(), known.max()))
    return f"{'-'.join(ends)} %"
