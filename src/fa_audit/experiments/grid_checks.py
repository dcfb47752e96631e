"""Check names, runs, baselines and sizes of a configuration, which its types cannot. Imports no
torch.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import TYPE_CHECKING, Any

from fa_audit.core.errors import AuditError, listed, unknown
from fa_audit.core.registry import check_function, load
from fa_audit.core.validation import problems_of
from fa_audit.data import WITHOUT_FILES
from fa_audit.experiments.config import (
    BUDGET,
    LARGEST_OPTION,
    Artefact,
    Configuration,
    SettingEntry,
)
from fa_audit.experiments.paths import data_file
from fa_audit.experiments.spec import CLIPPED_TWICE, parse_run
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES, architecture_options

if TYPE_CHECKING:
    from fa_audit.experiments.grid import Grid, Setting

EXPECTED = {int: "an integer such as {}", float: "a number with a point such as {}", str: "a text such as {}",
            bool: "True or False"}  # fmt: skip
DEVIATION = "a number > 0 with a point, such as 0.05"  # of an option whose default is None
LARGEST_GRID = 50_000  # runs: a plan takes about 50 kB of memory for each, so 2.5 GB


@dataclass(frozen=True)
class ArtefactKinds:
    """Registries of figures and tables."""

    figures: Mapping[str, str]
    tables: Mapping[str, str]
    single_setting: Collection[str]  # the kinds of both that show one setting


def setting_problems(config: Configuration) -> list[str]:
    """Return what keeps settings whose types are right from being expanded; each stage presumes the
    ones before.
    """
    return (
        list(_grid_size_problems(config.settings))
        or list(_variation_problems(config.settings))
        or [
            problem
            for _, block, entry in config.expanded()
            for problem in _entry_problems(f"settings.{block}", entry)
        ]
    )


def grid_problems(config: Configuration, grid: Grid, kinds: ArtefactKinds | None) -> list[str]:
    """Return what is wrong with the runs of a grid, and with the names in the labels, figures and
    tables of it.
    """
    problems = [problem for setting in grid.settings.values() for problem in _run_problems(setting)]
    runs = {
        run for setting in grid.settings.values() for run in (*setting.runs, *setting.baselines)
    }
    methods = {parse_run(run).method for run in runs}  # by which sweeps are labelled
    labelled = grid.settings.keys() | runs | methods
    for name in sorted(config.labels.keys() - labelled):
        problems.append(str(unknown("run or setting", name, labelled, where="labels")))
    for section in ("figures", "tables") if kinds else ():
        for name, artefact in getattr(config, section).items():
            kind, where = artefact.kind or name, f"{section}.{name}"
            try:
                check_function(section.removesuffix("s"), getattr(kinds, section), kind)
            except AuditError as error:
                problems.append(f"{where}: {error}")
            else:
                problems += _artefact_problems(where, artefact, grid, kind in kinds.single_setting)
    return problems


def check_data_root(root: str, datasets: Iterable[str], where: str) -> None:
    """Check that data sets which need files, and are not in results/ yet, have a folder; the
    default one is made.

    Args:
        where: the file and line of `root`; empty where they are not known.

    Raises:
        AuditError: there is no such folder.
    """
    needed = sorted(
        {
            name
            for name in datasets
            if name not in WITHOUT_FILES and not os.path.exists(data_file(name))
        }
    )
    folder, usual = os.path.expanduser(root), Configuration.model_fields["data_root"].default
    if needed and not os.path.isdir(folder) and (root != usual or os.path.exists(folder)):
        raise AuditError(
            f"{where or 'config'}: data_root: found no folder '{root}' in {os.getcwd()}; expected one that holds, or"
            f" will receive, {listed(needed)}: make it, or name another."
        )


# --- size and variations
# ---------------------------------------------------------------------------------------------


def _grid_size_problems(blocks: Mapping[str, SettingEntry]) -> Iterator[str]:
    """Yield grids that no plan can hold, counted without being expanded."""
    sizes = {name: _size(entry) for name, entry in blocks.items()}
    if (size := sum(sizes.values())) > LARGEST_GRID:
        largest = max(sizes, key=lambda name: sizes[name])
        yield (
            f"settings: found {size} runs, {sizes[largest]} of them in '{largest}'; expected at most {LARGEST_GRID}, of"
            " which a plan takes 2.5 GB of memory. Split the configuration into several."
        )


def _size(entry: SettingEntry) -> int:
    """Return the number of runs that a block asks for, of a ladder the longest that it can be."""
    depths = entry.vary.get("depth", [entry.architecture.options["depth"]])
    depth = max(
        (min(value, LARGEST_OPTION) for value in depths if isinstance(value, int)), default=1
    )
    names = len(entry.runs) + len(entry.compared_with()) + depth * len(entry.ladder)
    names += len(entry.sweep.methods) * len(entry.sweep.penalties)
    names *= 1 + len(entry.snapshots)
    return (
        prod(map(len, entry.vary.values())) * max(1, names) * len(entry.seeds)
    )  # without any run it is expanded, too


def _variation_problems(blocks: Mapping[str, SettingEntry]) -> Iterator[str]:
    """Yield variations that are wrong, or that would make two settings of one name."""
    names: dict[str, str] = {}
    for block, entry in blocks.items():
        yield from _vary_problems(f"settings.{block}", entry)
        for name in entry.expanded(block):
            if name in names:
                yield f"settings.{block}: makes a setting '{name}', and so does settings.{names[name]}; rename one."
            names[name] = block


def _vary_problems(where: str, entry: SettingEntry) -> Iterator[str]:
    """Yield names and values under ``vary`` that are wrong, or also given outside of it."""
    fixed = entry.model_dump(include={"dataset", "architecture", "seeds"})
    given = entry.model_fields_set & set(BUDGET) | entry.architecture.written.keys()
    for option, values in entry.vary.items():
        if option in given:
            yield f"{where}.vary.{option}: given a second time outside 'vary'; keep one of them."
        for value in values:
            if option in BUDGET:
                wrong = problems_of(SettingEntry, fixed | {option: value})
                yield from (f"{where}.vary.{problem}" for problem in wrong)
            else:
                yield from option_problems(
                    f"{where}.vary", entry.architecture.name, {option: value}
                )


def _entry_problems(where: str, entry: SettingEntry) -> Iterator[str]:
    """Yield options and snapshots that do not go together."""
    network = entry.architecture
    yield from option_problems(f"{where}.architecture", network.name, network.options)
    if entry.clip and entry.clip_groups:
        yield f"{where}: {CLIPPED_TWICE.format(entry.clip, entry.clip_groups)}"
    if entry.snapshots and not entry.epochs:
        yield f"{where}.snapshots: found with 0 epochs; expected none, the runs themselves are untrained."
    elif late := [epoch for epoch in entry.snapshots if epoch > entry.epochs]:
        yield f"{where}.snapshots: found {listed(map(str, late))}; expected at most {entry.epochs}, the last epoch."


def option_problems(where: str, kind: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield options that an architecture does not have or whose type or size is not their
    default's.
    """
    known = architecture_options(kind)
    for option, value in options.items():
        if option not in known:
            yield str(unknown(f"option of {kind}", option, known, where=where))
        elif known[option] is None:
            if value is not None and not (type(value) is float and 0 < value < inf):
                yield f"{where}.{option}: found {value!r}; expected {DEVIATION}."
        elif type(value) is not type(known[option]):
            expected = EXPECTED[type(known[option])].format(known[option])
            yield f"{where}.{option}: found {value!r}; expected {expected}."
        elif type(value) is int and not (least := min(1, known[option])) <= value <= LARGEST_OPTION:
            yield f"{where}.{option}: found {value}; expected an integer {least}..{LARGEST_OPTION}."


# --- runs, and what shows them
# ---------------------------------------------------------------------------------------


def _run_problems(setting: Setting) -> list[str]:
    """Return runs that a setting cannot have, or else missing baselines."""
    where = f"settings.{setting.block}"
    if not setting.runs:
        return [f"{where}: nothing to audit; expected runs, a sweep or a ladder."]
    return (
        list(_impossible_runs(setting, f"{where}.runs", setting.runs))
        or list(_impossible_runs(setting, f"{where}.baselines", setting.baselines))
        or list(
            _width_problems(
                where, setting.common["architecture"], [*setting.runs, *setting.baselines]
            )
        )
        or list(_baseline_problems(where, setting.runs, setting.baselines))
    )


def _impossible_runs(setting: Setting, where: str, names: Iterable[str]) -> Iterator[str]:
    """Yield runs that freeze more blocks than there are, and snapshots that no training passes."""
    depth, epochs = dict(setting.common["architecture_options"])["depth"], setting.common["epochs"]
    for run in map(parse_run, names):
        if run.frozen > depth:
            yield f"{where}: '{run}' freezes {run.frozen} blocks; the network has {depth}."
        elif run.snapshot is not None and run.snapshot >= epochs:
            yield f"{where}: '{run}' is not a snapshot; the last epoch is {epochs}, after which it is '{run.whole}'."


def _width_problems(where: str, architecture: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the methods that read all states alike, in a network whose blocks change the shape of
    their states.
    """
    if architecture in ARCHITECTURES or not getattr(
        load("architecture", {}, architecture), "reshapes", False
    ):
        return
    methods = {parse_run(name).method for name in names}
    alike = sorted(method for method in methods if load("method", METHODS, method).equal_widths)
    if alike:
        yield (
            f"{where}.runs: found {listed(alike)} in {architecture}, whose blocks change the shape of their states"
            " (reshapes = True); expected methods that do not read all states alike (equal_widths). Leave them out."
        )


def _baseline_problems(
    where: str, runs: Iterable[str], baselines: Collection[str]
) -> Iterator[str]:
    """Yield missing baselines: a run needs its own frozen one and backpropagation's, or depth
    utility means nothing.
    """
    needed: dict[str, list[str]] = {}
    for run in (run for run in map(parse_run, runs) if not run.is_baseline):
        for baseline in dict.fromkeys(str(run.baselines[role]) for role in ("own", "bp")):
            needed.setdefault(baseline, []).append(str(run))
    for baseline in sorted(needed.keys() - set(baselines)):
        yield (
            f"{where}.baselines: missing '{baseline}', the frozen baseline of {listed(needed[baseline])};"
            " add it to the list."
        )


def _artefact_problems(where: str, artefact: Artefact, grid: Grid, of_one: bool) -> Iterator[str]:
    """Yield what is wrong with the settings that a figure or table reads, or with their runs."""
    answering = {
        name for setting in grid.settings.values() for name in (setting.name, setting.block)
    }
    for setting in sorted(set(artefact.settings) - answering):
        yield str(unknown("setting", setting, answering, where=f"{where}.settings"))
    found = grid.named(artefact.settings)
    if of_one and len(found) > 1:
        yield f"{where}.settings: found {listed(found)}; a figure or table of this kind shows one setting."
    known = {run for setting in found for run in grid.setting(setting).runs}
    for run in sorted(set(artefact.runs) - known) if known else ():
        yield str(unknown("run", run, known, where=f"{where}.runs"))
