"""Print the plan of a grid as a table: settings, runs and seeds, what is done, the hours of the
rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from fa_audit.core.errors import listed
from fa_audit.experiments.costs import DEVICES, Costs, Hours
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.origins import Finished, facts_of
from fa_audit.experiments.paths import RunKey

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
Done: made from this configuration, its data and today's code. Stale results count as outstanding.
Hours: trainings and audits to be done, one job at a time, by benchmarks/costs.json, or by results/benchmarks/ where a
seed of the run is done. '~': from the time of backpropagation, or of the method without frozen blocks. '?': of networks
that were never measured: python benchmarks/costs.py, with --device cuda on a GPU."""


def plan_table(
    finished: Finished,
    costs: Costs,
    networks: Collection[RunKey] | None = None,
    audits: Collection[RunKey] | None = None,
) -> str:
    """Return the table, one row per block of the configuration; a shared run counts in the first
    block.

    Args:
        networks, audits: the networks to train or copy, and those to audit; default all.
    """
    grid = finished.origins.grid
    trained = _by_block(grid, grid.all_run_keys() if networks is None else networks)
    audited = _by_block(grid, grid.run_keys("runs") if audits is None else audits)
    rows = [list(HEADER)]
    for block, keys in trained.items():
        work = _work_cells(finished, keys, audited.get(block, []), costs)
        rows.append([block, *_size_cells(grid, keys), *work])
    every = [key for keys in trained.values() for key in keys]
    asked = [key for keys in audited.values() for key in keys]
    settings = sorted({key.setting for key in every})
    work = _work_cells(finished, every, asked, costs)
    rows.append(["in all", str(len(settings)), "", "", "", *work])
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [""]
    for name, *cells in rows:
        aligned = (cell.rjust(width) for cell, width in zip(cells, widths[1:]))
        lines.append("  ".join([name.ljust(widths[0]), *aligned]))
    measured = []
    for device in DEVICES:
        machines = ", ".join(costs.machines(device)) or "nothing measured yet"
        measured.append(f"{device.upper()}: {machines}")
    lines += [NOTE, f"Measured on {'; '.join(measured)}."]
    replaced = [name for name in settings if _is_replaced(grid, name)]
    if replaced:
        lines.append(
            f"Replaces networks in results/ that have other specifications, of {listed(replaced)}."
            " To keep them, give the settings other names."
        )
    # Results of another torch have other bits, but are kept.
    others = sorted(finished.torch.keys() - {version("torch")})
    if others:
        lines.append(f"Finished networks of torch {listed(others)}: delete them to train again.")
    return "\n".join(lines)


def _by_block(grid: Grid, keys: Iterable[RunKey]) -> dict[str, list[RunKey]]:
    """Group runs by the block of the configuration that they come from, in its order."""
    found: dict[str, list[RunKey]] = {setting.block: [] for setting in grid.settings.values()}
    for key in keys:
        found[grid.setting(key.setting).block].append(key)
    return {block: sorted(found[block]) for block in found if found[block]}


def _size_cells(grid: Grid, keys: Sequence[RunKey]) -> list[str]:
    """Return the numbers of settings, runs, baselines and seeds of networks."""
    runs, baselines = set(), set()
    for key in keys:
        setting = grid.setting(key.setting)
        if key.run in setting.runs:
            runs.add(key.run)
        if key.run in setting.baselines:
            baselines.add(key.run)
    settings = {key.setting for key in keys}
    seeds = {key.seed for key in keys}
    return [str(len(part)) for part in (settings, runs, baselines, seeds)]


def _work_cells(
    finished: Finished, keys: Sequence[RunKey], audits: Sequence[RunKey], costs: Costs
) -> list[str]:
    """Count trainings, those in an earlier row and finished ones; add up the hours of the
    outstanding jobs on every device.
    """
    grid = finished.origins.grid
    own = [key for key in keys if key not in grid.duplicate_runs]
    to_train = [grid.spec(key) for key in own if not finished.network(key)]
    to_audit = [grid.spec(key) for key in audits if not finished.audit(key)]
    cells = [str(len(own)), str(len(keys) - len(own)), str(len(own) - len(to_train))]
    for device in DEVICES:
        hours = [costs.training_hours(spec, device) for spec in to_train]
        hours += [costs.audit_hours(spec, device) for spec in to_audit]
        cells.append(hours_text(hours))
    return cells


def hours_text(hours: Sequence[Hours | None]) -> str:
    """Print a sum of hours: ``~`` if some are estimates, ``?`` if some are unknown.

    >>> hours_text([Hours(0.25, measured=False), None]), hours_text([None]), hours_text([])
    ('~0.25+?', '?', '0.0')
    """
    known = [one for one in hours if one is not None]
    if hours and not known:
        return "?"
    total = sum(one.value for one in known)
    digits = 2 if 0 < total < 1 else 1
    text = f"{total:.{digits}f}"
    if not all(one.measured for one in known):
        text = f"~{text}"
    return text if len(known) == len(hours) else f"{text}+?"


def _is_replaced(grid: Grid, name: str) -> bool:
    """Return whether a setting's first network in results/ has another specification."""
    setting = grid.setting(name)
    for key in (*setting.run_keys("runs"), *setting.run_keys("baselines")):
        if Path(key.path("checkpoints", "json")).exists():
            expected = grid.spec(key).to_dict()
            return bool(facts_of(key.path("checkpoints", "json")).get("spec", expected) != expected)
    return False
