"""The table of a grid: settings, runs and seeds, what is there already, and how long the rest will take."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from fa_audit.core.errors import AuditError, listed
from fa_audit.core.files import FOREIGN, read_json
from fa_audit.experiments.costs import DEVICES, Costs
from fa_audit.experiments.grid import Grid, Setting
from fa_audit.experiments.paths import RunKey

HEADER = ("setting", "nets", "runs", "baselines", "seeds", "trainings", "shared", "done", "CPU h", "GPU h")
NOTE = (
    "Done: files that exist, stale ones included.\n"
    "Hours: trainings and audits that are not done, one job at a time, from benchmarks/costs.json."
)


def plan_table(grid: Grid, costs: Costs) -> str:
    """Return the table, one row per block of the configuration; a run that two of them share counts in the first."""
    blocks: dict[str, list[Setting]] = {}
    for setting in grid.settings.values():
        blocks.setdefault(setting.block, []).append(setting)
    work = [work_of(grid, members, costs) for members in blocks.values()]
    rows = [[*_counts(members), *map(_text, row)] for members, row in zip(blocks.values(), work)]
    total = [_text(reduce(add, column)) for column in zip(*work)]
    named = [[name, *row] for name, row in zip(blocks, rows)]
    whole = ["in all", str(len(grid.settings)), "", "", "", *total]
    return "\n".join(["", *_aligned([HEADER, *named, whole]), NOTE, _machines(costs), *_replaced(grid)])


def _replaced(grid: Grid) -> Iterator[str]:
    """Yield a line for every setting whose first network is there, but of another specification."""
    for name, setting in grid.settings.items():
        keys = [key for role in ("runs", "baselines") for key in setting.run_keys(role)]
        first = next((key for key in keys if Path(key.path("checkpoints", "json")).exists()), None)
        if first and (changed := _changes(first, grid)):
            yield (
                f"Replaces networks of setting '{name}' that are in results/ with another specification"
                f" ({listed(changed, 2)}). To keep them, give the setting another name."
            )


def _changes(key: RunKey, grid: Grid) -> list[str]:
    """List what differs between a trained network's specification and the one that is asked for."""
    expected = grid.spec(key).to_dict()
    with contextlib.suppress(AuditError, OSError, *FOREIGN):  # what is damaged is made again in any case
        found = read_json(key.path("checkpoints", "json"))["spec"]
        return [f"{name} {found[name]}, now {value}" for name, value in expected.items() if found[name] != value]
    return []


def _counts(members: Sequence[Setting]) -> list[str]:
    """Return how many networks or budgets, audited runs, baselines and seeds a block has."""
    sets = ({item for setting in members for item in getattr(setting, name)} for name in ("runs", "baselines", "seeds"))
    return [str(len(one)) for one in (members, *sets)]


def work_of(grid: Grid, members: Sequence[Setting], costs: Costs) -> list[Any]:
    """Return what the settings of a block ask for, for the columns from "trainings" on.

    Returns:
        the numbers of trainings of its own, of trainings that an earlier row does, and of trainings done; then for each
        device the hours of every job to do, None where its network was not measured.
    """
    audited = [key for setting in members for key in setting.run_keys("runs")]
    keys = list(dict.fromkeys([*audited, *(key for setting in members for key in setting.run_keys("baselines"))]))
    own = [key for key in keys if key not in grid.duplicate_runs]
    to_train = _missing("checkpoints", "safetensors", own)
    to_audit = _missing("audits", "json", audited)
    hours = (
        [
            *(costs.training_hours(grid.spec(key), device) for key in to_train),
            *(costs.audit_hours(grid.spec(key), device) for key in to_audit),
        ]
        for device in DEVICES
    )
    return [len(own), len(keys) - len(own), len(own) - len(to_train), *hours]


def _missing(folder: str, ending: str, keys: Iterable[RunKey]) -> list[RunKey]:
    return [key for key in keys if not Path(key.path(folder, ending)).exists()]


def _text(cell: int | list[float | None]) -> str:
    """Return a count as it is, hours as their sum; ``?`` marks jobs without an estimate.

    >>> _text([0.5, None]), _text([None]), _text([])
    ('0.5+?', '?', '0.0')
    """
    if isinstance(cell, int):
        return str(cell)
    known = [hours for hours in cell if hours is not None]
    return "?" if cell and not known else f"{sum(known):.1f}{'+?' if len(known) < len(cell) else ''}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def _machines(costs: Costs) -> str:
    machines = [f"{d.upper()}: {', '.join(costs.machines(d)) or 'nothing measured yet'}" for d in DEVICES]
    return f"Measured on {'; '.join(machines)}. '?' marks networks that were not."
