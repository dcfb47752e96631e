"""What a person reads when the workflow starts, ends or fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from _inventory import inventory

from fa_audit.experiments.costs import Costs
from fa_audit.experiments.grid import Grid


def plan(grid: Grid, device: str, costs: Costs, models: Sequence[str] = ()) -> str:
    """The banner: where the workflow computes, what there is to do, where to watch.

    Args:
        models: the audits of models of somebody else, one file each.
    """
    lines = ["", "fa-audit", f"  device     {device}"]
    if models:
        lines.append(f"  models     {len(models)}, {sum(Path(path).exists() for path in models)} audited already")
    if grid.settings:
        lines += ["  progress   one line per epoch in results/logs/train_network/", inventory(grid, costs)]
    return "\n".join([*lines, ""])


def results(grid: Grid, artefacts: Iterable[str]) -> str:
    """The farewell: where the artefacts are, and each run's verdicts."""
    present = [f"  {path}" for path in artefacts if Path(path).exists()]
    return "\n".join(["", "fa-audit: done. Results:", *present, *_verdict_lines(grid), ""])


def _verdict_lines(grid: Grid) -> list[str]:
    import pandas as pd

    lines: list[str] = []
    for name in sorted(grid.settings):
        path = Path(f"results/tidy/{name}/runs.csv")
        if not path.exists():
            continue
        lines += ["", f"  verdicts in {name} (three-check; four-check; frozen baseline):"]
        for run, rows in pd.read_csv(path).groupby("run", sort=False):
            seeds: dict[str, list[int]] = defaultdict(list)
            for row in rows.itertuples():
                compared = f"against {row.baseline}" if pd.notna(row.own_frozen_acc) else "no baseline"
                seeds[f"{row.three_check}; {row.four_check}; {compared}"].append(row.seed)
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
