"""The table of a grid: settings, runs and seeds, what is there already, and how long the rest will
take.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from importlib.metadata import version
from operator import add
from pathlib import Path
from typing import Any

from fa_audit.core.errors import listed
from fa_audit.experiments.costs import DEVICES, Costs, Hours
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.origins import Finished, facts_of
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.spec import DEPARTURES

HEADER = (
    "setting",
    "nets",
    "runs",
    "baselines",
    "seeds",
    "trainings",
    "shared",
    "done",
    "CPU h",
    "GPU h",
)
NOTE = """\
Done: made from this configuration, its data and today's code; what is stale is to be done.
Hours: trainings and audits to be done, one job at a time, by benchmarks/costs.json, or by results/benchmarks/ where a
seed of the run is done. '~': from the time of backpropagation, or of the method without frozen blocks. '?': of networks
that were never measured: python benchmarks/costs.py, with --device cuda on a GPU."""


def plan_table(
    finished: Finished,
    costs: Costs,
    networks: Collection[RunKey] | None = None,
    audits: Collection[RunKey] | None = None,
) -> str:
    """Return the table, one row per block of the configuration; a run that two of them share counts
    in the first.

    Args:
        networks, audits: those that are asked for, to be trained or copied, and to be audited; by
            default all.
    """
    grid = finished.origins.grid
    networks = list(grid.all_run_keys()) if networks is None else sorted(networks)
    by_block = (
        _by_block(grid, networks),
        _by_block(grid, grid.run_keys("runs") if audits is None else sorted(audits)),
    )
    rows, work = [], []
    for block in dict.fromkeys(
        setting.block for setting in grid.settings.values() if setting.block in by_block[0]
    ):
        trained, audited = (keys.get(block, []) for keys in by_block)
        work.append(work_of(finished, trained, audited, costs))
        rows.append(
            [block, *(str(len(part)) for part in _parts(grid, trained)), *map(_text, work[-1])]
        )
    total, nets = (
        [_text(reduce(add, column)) for column in zip(*work)],
        {key.setting for key in networks},
    )
    table = [HEADER, *rows, ["in all", str(len(nets)), "", "", "", *total]]
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table
    ]
    machines = [
        f"{d.upper()}: {', '.join(costs.machines(d)) or 'nothing measured yet'}" for d in DEVICES
    ]
    notes = [
        NOTE,
        f"Measured on {'; '.join(machines)}.",
        *_replaced(grid, nets),
        *_other_torch(finished.torch),
    ]
    return "\n".join(["", *lines, *notes])


def _other_torch(found: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for every other version of torch that finished networks were trained with: they
    are kept.
    """
    installed = version("torch")
    for other, count in sorted(found.items()):
        if other != installed:
            yield f"Finished networks of torch {other} (installed: {installed}): {count}. Delete them to train again."


def _by_block(grid: Grid, keys: Iterable[RunKey]) -> dict[str, list[RunKey]]:
    """Group runs by the block of the configuration that they come from."""
    found: dict[str, list[RunKey]] = {}
    for key in keys:
        found.setdefault(grid.setting(key.setting).block, []).append(key)
    return found


def _parts(grid: Grid, keys: Sequence[RunKey]) -> tuple[set[Any], ...]:
    """Return the settings, runs, baselines and seeds of networks."""
    pairs = {(key.setting, key.run) for key in keys}
    settings = {setting: grid.setting(setting) for setting, _ in pairs}
    runs = {
        run for name, setting in settings.items() for run in setting.runs if (name, run) in pairs
    }
    baselines = {
        run
        for name, setting in settings.items()
        for run in setting.baselines
        if (name, run) in pairs
    }
    return set(settings), runs, baselines, {key.seed for key in keys}


def _replaced(grid: Grid, names: Collection[str]) -> Iterator[str]:
    """Yield a line for every setting whose first network is there with another specification."""
    for setting in (setting for name, setting in grid.settings.items() if name in names):
        keys = [key for role in ("runs", "baselines") for key in setting.run_keys(role)]
        first = next((key for key in keys if Path(key.path("checkpoints", "json")).exists()), None)
        if first is None:
            continue
        expected = DEPARTURES | grid.spec(first).to_dict()
        found = DEPARTURES | facts_of(first.path("checkpoints", "json")).get("spec", expected)
        if changed := [
            f"{key} {found.get(key)}, now {now}"
            for key, now in expected.items()
            if found.get(key) != now
        ]:
            yield (
                f"Replaces networks of setting '{setting.name}' that are in results/ with another specification"
                f" ({listed(changed, 2)}). To keep them, give the setting another name."
            )


def work_of(
    finished: Finished, keys: Sequence[RunKey], audited: Iterable[RunKey], costs: Costs
) -> list[Any]:
    """Return what networks and audits take, for the columns from "trainings" on.

    Returns:
        the numbers of its own trainings, of trainings that an earlier row does, and of its own that
        are done; then for each device the hours of every job to do, None where its network was not
        measured.
    """
    grid = finished.origins.grid
    own = [key for key in keys if key not in grid.duplicate_runs]
    to_train = [key for key in own if not finished.network(key)]
    to_audit = [key for key in audited if not finished.audit(key)]
    hours = []
    for device in DEVICES:
        trainings = [costs.training_hours(grid.spec(key), device) for key in to_train]
        hours.append([*trainings, *(costs.audit_hours(grid.spec(key), device) for key in to_audit)])
    return [len(own), len(keys) - len(own), len(own) - len(to_train), *hours]


def _text(cell: int | list[Hours | None]) -> str:
    """Return a count as it is, hours as their sum: ``~`` where some are estimates, ``?`` for jobs
    without one.

    >>> _text([Hours(0.25, measured=False), None]), _text([Hours(2, measured=True)]), _text([None]), _text([])
    ('~0.25+?', '2.0', '?', '0.0')
    """
    if isinstance(cell, int):
        return str(cell)
    known = [hours for hours in cell if hours is not None]
    if cell and not known:
        return "?"
    total, about = (
        sum(hours.value for hours in known),
        "" if all(hours.measured for hours in known) else "~",
    )
    return f"{about}{total:.{2 if 0 < total < 1 else 1}f}{'+?' if len(known) < len(cell) else ''}"
