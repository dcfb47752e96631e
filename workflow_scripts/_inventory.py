"""The table of the grid: settings, runs and seeds, what is there already, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fa_audit.experiments.costs import DEVICES, Costs
from fa_audit.experiments.grid import Grid, Setting
from fa_audit.experiments.paths import RunKey

HEADER = ("setting", "nets", "runs", "baselines", "seeds", "trainings", "shared", "done", "CPU h", "GPU h")
NOTE = (
    "Done: files that are there, also those that an edit has made stale (the jobs below say which).\n"
    "Hours: trainings and audits that are not done, one job at a time, from benchmarks/costs.json."
)


@dataclass(frozen=True)
class Hours:
    """An estimate: the sum over the jobs whose network was measured, and how many jobs are not in it."""

    value: float = 0.0
    unknown: int = 0

    def __add__(self, other: Hours) -> Hours:
        return Hours(self.value + other.value, self.unknown + other.unknown)

    def __str__(self) -> str:
        return f"{self.value:.1f}{'+?' if self.unknown else ''}" if self.value or not self.unknown else "?"


@dataclass(frozen=True)
class Work:
    """One row: trainings of its own, trainings that an earlier row does, trainings done, and hours by device."""

    trainings: int
    shared: int
    done: int
    hours: tuple[Hours, ...]

    def __add__(self, other: Work) -> Work:
        hours = tuple(one + two for one, two in zip(self.hours, other.hours))
        return Work(self.trainings + other.trainings, self.shared + other.shared, self.done + other.done, hours)

    def cells(self) -> tuple[str, ...]:
        return (str(self.trainings), str(self.shared), str(self.done), *map(str, self.hours))


NOTHING = Work(0, 0, 0, tuple(Hours() for _ in DEVICES))


def inventory(grid: Grid, costs: Costs) -> str:
    """The table, one row for every block of the configuration; a run that two of them share counts in the first."""
    blocks: dict[str, list[Setting]] = {}
    for setting in grid.settings.values():
        blocks.setdefault(setting.block, []).append(setting)
    work = {name: work_of(grid, members, costs) for name, members in blocks.items()}
    rows = [(name, *_counts(members), *work[name].cells()) for name, members in blocks.items()]
    whole = ("in all", str(len(grid.settings)), "", "", "", *sum(work.values(), NOTHING).cells())
    return "\n".join(["", *_aligned([HEADER, *rows, whole]), NOTE, *_unmeasured(costs), ""])


def _counts(members: list[Setting]) -> tuple[str, ...]:
    """Networks or budgets, audited runs, baselines and seeds of a block, as text."""
    audited, baselines = ({run for s in members for run in getattr(s, kind)} for kind in ("runs", "baselines"))
    seeds = {seed for setting in members for seed in setting.seeds}
    return tuple(str(len(one)) for one in (members, audited, baselines, seeds))


def work_of(grid: Grid, members: list[Setting], costs: Costs) -> Work:
    """What the settings of a block ask for."""
    audited = [cell for setting in members for cell in setting.cells("runs")]
    cells = list(dict.fromkeys([*audited, *(cell for setting in members for cell in setting.cells("baselines"))]))
    own = [cell for cell in cells if cell not in grid.duplicate_runs]
    trained = [cell for cell in own if _there("checkpoints", "safetensors", cell)]
    to_train = [cell for cell in own if cell not in set(trained)]
    to_audit = [cell for cell in audited if not _there("audits", "json", cell)]
    hours = tuple(sum(_estimates(grid, costs, device, to_train, to_audit), Hours()) for device in DEVICES)
    return Work(len(own), len(cells) - len(own), len(trained), hours)


def _there(folder: str, ending: str, cell: RunKey) -> bool:
    setting, run, seed = cell
    return Path(f"results/{folder}/{setting}/{run}/seed{seed}.{ending}").exists()


def _estimates(
    grid: Grid, costs: Costs, device: str, to_train: list[RunKey], to_audit: list[RunKey]
) -> Iterator[Hours]:
    for cells, hours_of in ((to_train, costs.training_hours), (to_audit, costs.audit_hours)):
        for setting, run, seed in cells:
            value = hours_of(grid.settings[setting].spec(run, seed), device)
            yield Hours(unknown=1) if value is None else Hours(value)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def _unmeasured(costs: Costs) -> list[str]:
    machines = [f"{d.upper()}: {', '.join(costs.machines(d)) or 'nothing measured yet'}" for d in DEVICES]
    return [f"Measured on {'; '.join(machines)}. '?' marks networks that were not."]
