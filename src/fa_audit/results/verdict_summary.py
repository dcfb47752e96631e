"""Write every run's verdicts in a few lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from fa_audit.experiments.paths import evidence_files
from fa_audit.protocol.judge import FOUR, THREE
from fa_audit.results.statistics import extent
from fa_audit.results.tidy import judged, read_tidy


def verdict_lines(settings: Iterable[str]) -> Iterator[str]:
    """Yield a heading per setting and a line per run; skip settings without audits.json."""
    for setting in settings:
        path = Path(evidence_files([setting])[0])
        if path.exists():
            yield from ("", f"verdicts in {setting} (three-check; four-check):")
            yield from _lines(read_tidy([path]).runs)


def _lines(runs: pd.DataFrame) -> Iterator[str]:
    width = max(17, runs["run"].str.len().max())
    for run, seeds in runs.groupby("run", sort=False):
        found = judged(seeds)
        verdicts = f"{found.text(THREE)}; {found.text(FOUR)}"
        accuracy, frozen = (
            extent(100 * seeds[name], "{:.0f}".format) for name in ("accuracy", "own_frozen_acc")
        )
        compared = f"{seeds['baseline'].iloc[0]} {frozen} %" if frozen else "no baseline"
        labels = ", ".join(map(str, seeds["seed"]))
        yield f"  {run:<{width}} {verdicts:<39} accuracy {accuracy} %, {compared}  seeds {labels}"
        if found.settling:
            yield f"  {'':<{width}} {found.settling}"
