"""The table of a grid: settings, runs and seeds, what is there already, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from fa_audit.core.errors import listed
from fa_audit.experiments.costs import DEVICES, Costs, Hours
from fa_audit.experiments.grid import Grid, Setting
from fa_audit.experiments.origins import Finished, Origins, facts_of
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.spec import DEPARTURES

HEADER = ("setting", "nets", "runs", "baselines", "seeds", "trainings", "shared", "done", "CPU h", "GPU h")
NOTE = """\
Done: made from this configuration, its data and today's code; what is stale is to be done.
Hours: trainings and audits to be done, one job at a time, by benchmarks/costs.json, or by results/benchmarks/ where a
seed of the run is done. '~': from the time of backpropagation, or of the method without frozen blocks. '?': of networks
that were never measured: python benchmarks/costs.py, with --device cuda on a GPU."""


def plan_table(origins: Origins, costs: Costs, jobs: Collection[RunKey] | None = None) -> str:
    """Return the table, one row per block of the configuration; a run that two of them share counts in the first.

    Args:
        jobs: the networks that there is something to do for, of a plan; where others are not finished either, a target
            was named, and the table is of these alone; empty where a target needs none.
    """
    finished = Finished(origins)
    if jobs is not None and not all(key in jobs or finished.network(key) for key in origins.grid.all_run_keys()):
        origins = replace(origins, grid=_part(origins.grid, jobs))
        finished = Finished(origins)
    grid = origins.grid
    blocks: dict[str, list[Setting]] = {}
    for setting in grid.settings.values():
        blocks.setdefault(setting.block, []).append(setting)
    rows, work = [], []
    for name, members in blocks.items():
        parts = ({item for setting in members for item in getattr(setting, part)} for part in HEADER[2:5])
        work.append(work_of(finished, members, costs))
        rows.append([name, *(str(len(part)) for part in (members, *parts)), *map(_text, work[-1])])
    if not rows:
        return ""
    total = [_text(reduce(add, column)) for column in zip(*work)]
    table = [HEADER, *rows, ["in all", str(len(grid.settings)), "", "", "", *total]]
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]
    machines = [f"{d.upper()}: {', '.join(costs.machines(d)) or 'nothing measured yet'}" for d in DEVICES]
    return "\n".join(["", *lines, NOTE, f"Measured on {'; '.join(machines)}.", *_replaced(grid)])


def _part(grid: Grid, keys: Collection[RunKey]) -> Grid:
    """Return the settings of some networks, with no other runs, baselines and seeds than theirs."""
    found = {}
    for name, setting in grid.settings.items():
        if own := [key for key in keys if key.setting == name]:
            runs, seeds = {key.run for key in own}, {key.seed for key in own}
            parts = {
                role: tuple(run for run in getattr(setting, role) if run in runs) for role in ("runs", "baselines")
            }
            found[name] = replace(setting, seeds=tuple(seed for seed in setting.seeds if seed in seeds), **parts)
    return Grid(found)


def _replaced(grid: Grid) -> Iterator[str]:
    """Yield a line for every setting whose first network is there, but of another specification."""
    for name, setting in grid.settings.items():
        keys = [key for role in ("runs", "baselines") for key in setting.run_keys(role)]
        first = next((key for key in keys if Path(key.path("checkpoints", "json")).exists()), None)
        if first is None:
            continue
        expected = DEPARTURES | grid.spec(first).to_dict()
        found = DEPARTURES | facts_of(first.path("checkpoints", "json")).get("spec", expected)
        if changed := [f"{key} {found.get(key)}, now {now}" for key, now in expected.items() if found.get(key) != now]:
            yield (
                f"Replaces networks of setting '{name}' that are in results/ with another specification"
                f" ({listed(changed, 2)}). To keep them, give the setting another name."
            )


def work_of(finished: Finished, members: Sequence[Setting], costs: Costs) -> list[Any]:
    """Return what the settings of a block ask for, for the columns from "trainings" on.

    Returns:
        the numbers of trainings of its own, of trainings that an earlier row does, and of trainings done; then for each
        device the hours of every job to do, None where its network was not measured.
    """
    grid = finished.origins.grid
    audited = [key for setting in members for key in setting.run_keys("runs")]
    keys = list(dict.fromkeys([*audited, *(key for setting in members for key in setting.run_keys("baselines"))]))
    own = [key for key in keys if key not in grid.duplicate_runs]
    to_train = [key for key in own if not finished.network(key)]
    to_audit = [key for key in audited if not finished.audit(key)]
    hours = (
        [
            *(costs.training_hours(grid.spec(key), device, epochs_before(grid, key)) for key in to_train),
            *(costs.audit_hours(grid.spec(key), device) for key in to_audit),
        ]
        for device in DEVICES
    )
    return [len(own), len(keys) - len(own), len(own) - len(to_train), *hours]


def epochs_before(grid: Grid, key: RunKey) -> int:
    """Return the epochs that a run's training does not do itself, since it goes on from another's."""
    previous = grid.previous_runs.get(key)
    return grid.spec(previous).last_epoch if previous else 0


def _text(cell: int | list[Hours | None]) -> str:
    """Return a count as it is, hours as their sum: ``~`` where some are estimates, ``?`` for jobs without one.

    >>> _text([Hours(0.25, measured=False), None]), _text([Hours(2, measured=True)]), _text([None]), _text([])
    ('~0.25+?', '2.0', '?', '0.0')
    """
    if isinstance(cell, int):
        return str(cell)
    known = [hours for hours in cell if hours is not None]
    if cell and not known:
        return "?"
    total, about = sum(hours.value for hours in known), "" if all(hours.measured for hours in known) else "~"
    return f"{about}{total:.{2 if 0 < total < 1 else 1}f}{'+?' if len(known) < len(cell) else ''}"
