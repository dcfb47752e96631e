"""What a person reads when the workflow starts, ends or fails, and the lock that keeps two of them apart."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from fa_audit.errors import AuditError
from fa_audit.files import exclusive
from fa_audit.grid import Grid

FOLDER_LOCK = Path(".snakemake/fa-audit.lock")
_held = contextlib.ExitStack()  # until the process ends, however it ends


def claim_folder() -> None:
    """Hold the folder for this workflow.

    Raises:
        AuditError: another workflow is at work here.
    """
    try:
        _held.enter_context(exclusive(FOLDER_LOCK, wait=False))
    except BlockingIOError:
        owner = FOLDER_LOCK.read_text(encoding="utf-8").strip() or "unknown"
        raise AuditError(
            f"another snakemake (process {owner}) is at work in {Path.cwd()}; wait for it or stop it, then run again."
        ) from None
    FOLDER_LOCK.write_text(f"{os.getpid()}\n", encoding="utf-8")


def plan(grid: Grid, device: str) -> str:
    """The banner: how large the grid is, where it computes, what is there already."""
    lines = ["", "fa-audit", f"  device     {device}"]
    for kind, folder, ending in (("runs", "checkpoints", "safetensors"), ("baselines", "baselines", "json")):
        cells = list(grid.cells(kind))
        done = sum(Path(f"results/{folder}/{s}/{r}/seed{n}.{ending}").exists() for s, r, n in cells)
        seeds = sum(len(setting.seeds) * len(getattr(setting, kind)) for setting in grid.settings.values())
        lines.append(f"  {kind:<10} {seeds} in {len(grid.settings)} setting(s), {done} there already")
    return "\n".join([*lines, "  progress   one line per epoch in results/logs/train_network/", ""])


def results(grid: Grid, artefacts: Iterable[str]) -> str:
    """The farewell: where the artefacts are, and each run's verdicts."""
    present = [path for path in artefacts if Path(path).exists()]
    lines = ["", *(f"  {path}" for path in present)]
    return "\n".join(["", "fa-audit: done. Results:", *lines[1:], *_verdict_lines(grid), ""])


def _verdict_lines(grid: Grid) -> list[str]:
    import pandas as pd

    lines: list[str] = []
    for name in sorted(grid.settings):
        path = Path(f"results/tidy/{name}/runs.csv")
        if not path.exists():
            continue
        lines += ["", f"  verdicts in {name} (three-check; four-check):"]
        for run, rows in pd.read_csv(path).groupby("run", sort=False):
            seeds: dict[str, list[int]] = defaultdict(list)
            for row in rows.itertuples():
                seeds[f"{row.three_check}; {row.four_check}"].append(row.seed)
            for verdict, members in seeds.items():
                lines.append(f"    {run:<18} {verdict}  [seeds {', '.join(map(str, members))}]")
    return lines


def way_on(log_file: str) -> str:
    """The advice after a failure: which log, and that a plain rerun goes on from where it stopped."""
    return "\n".join(
        [
            "",
            "fa-audit: a job failed or the work was interrupted.",
            "  what failed    its log is shown above and kept under results/logs/",
            f"  whole session  {log_file}",
            "  to go on       run the same command again: results are kept, training resumes at its last epoch",
            "",
        ]
    )
