"""The table of planned work: what the targets need, how much is done, how long the rest takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.metadata import version

from fa_audit.core.errors import listed
from fa_audit.documents.formats import Table, to_text
from fa_audit.experiments.costs import DEVICES, Costs, Hours, facts_of
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.paths import RunKey

_HEADER = ("setting", "runs", "seeds", "trainings", "shared", "done", "CPU h", "GPU h")
_NOTE = """\
Shared: copied from an earlier setting. Done: trained, and up to date.
Hours: outstanding trainings and audits, one after another; times come from
results/benchmarks/ if a seed of the run is done, else benchmarks/costs.json.
'~': estimated from the method's own time without frozen blocks, or else from
backpropagation's.
'?': some networks were never measured; run python benchmarks/costs.py,
with --device cuda on a GPU."""


def plan_table(
    grid: Grid, costs: Costs, networks: Mapping[RunKey, bool], audits: Mapping[RunKey, bool]
) -> str:
    """Return the table as text: a row per entry of `settings`, and a note on the columns.

    Args:
        networks, audits: every network and audit that the targets need -> whether it is
            outstanding.
    """
    blocks: dict[str, list[RunKey]] = {setting.block: [] for setting in grid.settings.values()}
    for key in networks:
        blocks[grid.setting(key.setting).block].append(key)
    rows = []
    for block, keys in blocks.items():
        if keys:
            _, runs, seeds = map(set, zip(*keys))
            sizes = str(len(runs)), str(len(seeds))
            rows.append((block, *sizes, *_work_cells(grid, costs, keys, networks, audits)))
    rows.append(("in all", "", "", *_work_cells(grid, costs, networks, networks, audits)))
    lines = ["\n" + to_text(Table("", _HEADER, tuple(rows))) + _NOTE]
    # Networks trained by another version of torch have other bits, but are kept.
    others = sorted(_torch_of(key for key in networks if not networks[key]) - {version("torch")})
    if others:
        lines.append(
            f"Networks trained by torch {listed(others)} are kept; delete them to train again."
        )
    replaced = _replaced_settings(grid, networks)
    if replaced:
        lines.append(
            "Replaces networks in results/, because the specifications of"
            f" {listed(replaced)} have changed. To keep them, give the settings other names."
        )
    return "\n".join(lines)


def _work_cells(
    grid: Grid,
    costs: Costs,
    keys: Collection[RunKey],
    networks: Mapping[RunKey, bool],
    audits: Mapping[RunKey, bool],
) -> list[str]:
    """Return the cells of a row: the numbers of trainings, of runs shared with an earlier setting
    and of finished trainings, then the hours of the outstanding jobs on each device.
    """
    own = [key for key in keys if key not in grid.duplicate_runs]
    to_train = [grid.spec(key) for key in own if networks[key]]
    to_audit = [grid.spec(key) for key in keys if audits.get(key)]
    cells = [str(len(own)), str(len(keys) - len(own)), str(len(own) - len(to_train))]
    for device in DEVICES:
        hours = [costs.training_hours(spec, device) for spec in to_train]
        hours += [costs.audit_hours(spec, device) for spec in to_audit]
        cells.append(hours_text(hours))
    return cells


def hours_text(hours: Sequence[Hours | None]) -> str:
    """Return a sum of hours as text: ``~`` if some are estimates, ``?`` if some are unknown."""
    known = list(filter(None, hours))
    if hours and not known:
        return "?"
    total, sign = 0.0, ""
    for value, is_measured in known:
        total += value
        sign = sign if is_measured else "~"
    digits = 2 if 0 < total < 1 else 1
    return f"{sign}{total:.{digits}f}" + "+?" * (len(known) < len(hours))


def _torch_of(keys: Iterable[RunKey]) -> set[str]:
    """Return the versions of torch that trained networks, where they are recorded."""
    found = set()
    for key in keys:
        made = facts_of(key.path("checkpoints", "json")).get("provenance", {})
        found.add(made.get("packages", {}).get("torch"))
    return found - {None}


def _replaced_settings(grid: Grid, keys: Iterable[RunKey]) -> list[str]:
    """Return the settings whose first network in results/ has another specification in `grid`."""
    first: dict[str, bool] = {}
    for key in keys:
        # One sidecar is enough: a setting's networks differ in the run's options and seed only.
        if key.setting not in first:
            found = facts_of(key.path("checkpoints", "json")).get("spec")
            if found is not None:
                first[key.setting] = found != grid.spec(key).to_dict()
    return sorted(setting for setting, is_other in first.items() if is_other)
