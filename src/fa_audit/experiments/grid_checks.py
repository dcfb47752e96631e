"""Check what a configuration's types cannot say: names, runs, baselines, sizes. Imports no torch."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import inf, prod
from typing import Any

from fa_audit.core.errors import AuditError, listed, unknown
from fa_audit.core.registry import ELSEWHERE, check_name, entry_of
from fa_audit.core.source import class_literals, find_module
from fa_audit.core.validation import problems_of
from fa_audit.data import DATASETS
from fa_audit.experiments.config import BUDGET, LARGEST_OPTION, Artefact, Configuration, ModelEntry, SettingEntry
from fa_audit.experiments.spec import CLIPPED_TWICE, parse_run
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES, architecture_options

EXPECTED = {int: "an integer such as {}", float: "a number with a point such as {}", str: "a text such as {}",
            bool: "True or False"}  # fmt: skip
DEVIATION = "a number > 0 with a point, such as 0.05"  # what an option whose default is None is
LARGEST_GRID = 50_000  # runs: a plan takes about 50 kB of memory for each, so 2.5 GB


@dataclass(frozen=True)
class ArtefactKinds:
    """Registries of figures and tables.

    Attributes:
        single_setting: the kinds of both that show one setting.
    """

    figures: Mapping[str, str]
    tables: Mapping[str, str]
    single_setting: Collection[str]


def configuration_problems(config: Configuration, kinds: ArtefactKinds | None) -> list[str]:
    """Return what is wrong with a configuration whose types are right; each stage presumes the ones before."""
    return (
        list(_grid_size_problems(config.settings))
        or list(_variation_problems(config.settings))
        or list(_name_problems(config, kinds))
    )


# --- size and variations ---------------------------------------------------------------------------------------------


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
    depths = entry.vary.get("depth", [entry.architecture.options.get("depth", 1)])
    depth = max((min(value, LARGEST_OPTION) for value in depths if isinstance(value, int)), default=1)
    names = len(entry.runs) + len(entry.compared_with()) + depth * len(entry.ladder)
    names += len(entry.sweep.methods) * len(entry.sweep.penalties)
    names *= 1 + len(entry.snapshots)
    return prod(map(len, entry.vary.values())) * max(1, names) * len(entry.seeds)  # without any run it is expanded, too


def _variation_problems(blocks: Mapping[str, SettingEntry]) -> Iterator[str]:
    """Yield what would make two settings the same, or two values of one option."""
    names: dict[str, str] = {}
    for block, entry in blocks.items():
        yield from _vary_problems(f"settings.{block}", entry)
        for name in entry.expanded(block):
            if name in names:
                yield f"settings.{block}: makes a setting '{name}', and so does settings.{names[name]}; rename one."
            names[name] = block


def _vary_problems(where: str, entry: SettingEntry) -> Iterator[str]:
    """Yield names and values under ``vary`` that are wrong, or given outside of it, too."""
    for option, values in entry.vary.items():
        given = entry.model_fields_set & set(BUDGET) | entry.architecture.options.keys()
        if option in given:
            yield f"{where}.vary.{option}: given a second time outside 'vary'; keep one of them."
        for value in values:
            if option in BUDGET:
                yield from _budget_problems(f"{where}.vary", entry, option, value)
            elif entry.architecture.defaults:
                yield from option_problems(f"{where}.vary", entry.architecture.name, {option: value})


def _budget_problems(where: str, entry: SettingEntry, option: str, value: Any) -> Iterator[str]:
    varied = entry.model_dump(include={"dataset", "architecture", "seeds"}) | {option: value}
    yield from (f"{where}.{problem}" for problem in problems_of(SettingEntry, varied))


# --- names -----------------------------------------------------------------------------------------------------------


def _name_problems(config: Configuration, kinds: ArtefactKinds | None) -> Iterator[str]:
    """Yield names that nothing answers to, and missing baselines."""
    settings = {name: (block, entry) for name, block, entry in config.expanded()}
    wrong = [found for block, entry in settings.values() for found in _setting_problems(f"settings.{block}", entry)]
    yield from wrong
    for name, model in config.models.items():
        yield from _model_problems(f"models.{name}", model)
    if not wrong:  # else labels may mean what could not be read
        runs = set(chain.from_iterable(_run_names(entry) for _, entry in settings.values()))
        labelled = settings.keys() | runs | {parse_run(run).method for run in runs}  # sweeps are labelled by the method
        for name in sorted(config.labels.keys() - labelled):
            yield str(unknown("run or setting", name, labelled, where="labels"))
    if kinds is not None:
        answering = _answering({name: block for name, (block, _) in settings.items()})
        runs_of = {name: _audited(entry) for name, (_, entry) in settings.items()} if not wrong else {}
        for section in ("figures", "tables"):
            for name, artefact in getattr(config, section).items():
                yield from _artefact_problems(section, name, artefact, kinds, answering, runs_of)


def _answering(blocks: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the settings that answer to a name: by their own, and by their block's."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, block in blocks.items():
        for called in dict.fromkeys((name, block)):
            found[called].append(name)
    return found


def _artefact_problems(
    section: str,
    name: str,
    artefact: Artefact,
    kinds: ArtefactKinds,
    answering: Mapping[str, list[str]],
    runs_of: Mapping[str, set[str]],
) -> Iterator[str]:
    """Yield what is wrong with a figure or a table: its kind, the settings that it reads, or the runs of them."""
    where, kind = f"{section}.{name}", artefact.kind or name
    if wrong := list(_missing(section.removesuffix("s"), getattr(kinds, section), kind, where)):
        yield from wrong
        return
    for setting in sorted(set(artefact.settings) - answering.keys()):
        yield str(unknown("setting", setting, answering, where=f"{where}.settings"))
    found = dict.fromkeys(chain.from_iterable(answering.get(setting, ()) for setting in artefact.settings))
    if kind in kinds.single_setting and len(found) > 1:
        yield f"{where}.settings: found {listed(found)}; a figure or table of kind {kind} shows one setting."
    known = set().union(*(runs_of.get(setting, ()) for setting in found))
    for run in sorted(set(artefact.runs) - known) if known else ():
        yield str(unknown("run", run, known, where=f"{where}.runs"))


def _run_names(entry: SettingEntry) -> Iterator[str]:
    """Yield every run name of a setting."""
    yield from chain.from_iterable(entry.run_names(entry.architecture.depth).values())


def _audited(entry: SettingEntry) -> set[str]:
    """Return the names of a setting's runs without its baselines: those that figures and tables show."""
    names = entry.run_names(entry.architecture.depth)
    return set(chain.from_iterable(names[part] for part in ("runs", "sweep", "ladder")))


def _model_problems(where: str, entry: ModelEntry) -> Iterator[str]:
    """Yield an unknown data set, and a callable that is not written as one or whose module is not found."""
    yield from _missing("dataset", DATASETS, entry.dataset, f"{where}.dataset")
    module = entry.model.partition(":")[0]
    if not ELSEWHERE.fullmatch(entry.model):
        yield (
            f"{where}.model: found {entry.model!r}; expected package.module:name of what makes the model, such as"
            " torchvision.models:resnet18."
        )
    elif find_module(module, sys.path) is None:
        yield f"{where}.model: no file of the module '{module}' in the working folder or in PYTHONPATH."


def _missing(kind: str, registry: Mapping[str, str], name: str, where: str) -> Iterator[str]:
    """Yield what is wrong with a name that is neither registered nor that of something in a file."""
    try:
        check_name(kind, registry, name)
    except AuditError as error:
        yield f"{where}: {error}"


# --- one setting -----------------------------------------------------------------------------------------------------


def _setting_problems(where: str, entry: SettingEntry) -> Iterator[str]:
    yield from _missing("dataset", DATASETS, entry.dataset, f"{where}.dataset")
    network = entry.architecture
    if entry.clip and entry.clip_groups:
        yield f"{where}: {CLIPPED_TWICE.format(entry.clip, entry.clip_groups)}"
    if wrong := list(option_problems(f"{where}.architecture", network.name, network.defaults | network.options)):
        yield from wrong
    else:
        yield from _runs_problems(where, entry, network.depth)


def option_problems(where: str, kind: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield an unknown architecture, and options that it does not have or whose type or size is not their default's."""
    try:
        known = architecture_options(kind)
    except AuditError as error:
        yield f"{where}.name: {error}"
        return
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


def _runs_problems(where: str, entry: SettingEntry, depth: int) -> Iterator[str]:
    parts = entry.run_names(depth)
    problems = list(_snapshot_problems(where, entry))
    given = [part for part in parts if part != "baselines" or part in entry.model_fields_set]
    for part in given:
        problems += _run_problems(f"{where}.{part}", parts[part], depth, entry.epochs)
    audited = [*parts["runs"], *parts["sweep"], *parts["ladder"]]
    if not audited:
        problems.append(f"{where}: nothing to audit; expected runs, a sweep or a ladder.")
    every = chain.from_iterable(parts.values())
    yield from (
        problems
        or list(_width_problems(where, entry.architecture.name, every))
        or _baseline_problems(where, audited, parts["baselines"])
    )


def _width_problems(where: str, architecture: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the methods that read all states alike, in a network whose blocks change the shape of their states."""
    if architecture in ARCHITECTURES or not class_literals(architecture).get("reshapes"):
        return
    methods = {parse_run(name).method for name in names}
    alike = sorted(m for m in methods if class_literals(entry_of("method", METHODS, m)).get("equal_widths"))
    if alike:
        yield (
            f"{where}.runs: found {listed(alike)} in {architecture}, whose blocks change the shape of their states"
            " (reshapes = True); expected methods that do not read all states alike (equal_widths). Leave them out."
        )


def _snapshot_problems(where: str, entry: SettingEntry) -> Iterator[str]:
    """Yield snapshots that no training passes."""
    if entry.snapshots and not entry.epochs:
        yield f"{where}.snapshots: found with 0 epochs; expected none, the runs themselves are untrained."
    elif late := [epoch for epoch in entry.snapshots if epoch > entry.epochs]:
        yield f"{where}.snapshots: found {listed(map(str, late))}; expected at most {entry.epochs}, the last epoch."


def _run_problems(where: str, names: list[str], depth: int, epochs: int) -> Iterator[str]:
    """Yield what is wrong with a list of run names."""
    seen: dict[str, str] = {}
    yield from filter(None, (_list_problem(text, where, depth, epochs, seen) for text in names))


def run_problem(text: str, where: str) -> str:
    """Return what is wrong with the options of a run name, or its method, for any network; empty if nothing is."""
    try:
        run = parse_run(text, where=where)
    except AuditError as error:
        return str(error)
    try:  # a method is in the registry, or a class in a file that can be found
        class_literals(entry_of("method", METHODS, run.method))
    except AuditError as error:
        return f"{where}: {error}"
    return ""


def _list_problem(text: str, where: str, depth: int, epochs: int, seen: dict[str, str]) -> str:
    """Return what is wrong with a run name in a list of them, after the names in `seen`."""
    if problem := run_problem(text, where):
        return problem
    run = parse_run(text)
    if run.frozen > depth:
        return f"{where}: '{text}' freezes {run.frozen} blocks; the network has {depth}."
    if run.snapshot is not None and run.snapshot >= epochs:
        return f"{where}: '{text}' is no snapshot; the last epoch is {epochs}, after which it is '{run.whole}'."
    if where.endswith("baselines") and not run.is_baseline:
        return f"{where}: '{text}' is no baseline; expected '+frozen' or '+shallow', or list it under runs."
    if str(run) in seen:
        return f"{where}: '{text}' and '{seen[str(run)]}' are the same run; keep one."
    seen[str(run)] = text
    return ""


def _baseline_problems(where: str, audited: list[str], baselines: list[str]) -> Iterator[str]:
    """Yield missing baselines: a run needs its own frozen one and backpropagation's, or depth utility means nothing."""
    present = {str(parse_run(text)) for text in baselines}
    needed: dict[str, list[str]] = {}
    for run in dict.fromkeys(run for run in map(parse_run, audited) if not run.is_baseline):
        for baseline in dict.fromkeys(str(run.baselines[role]) for role in ("own", "bp")):
            needed.setdefault(baseline, []).append(str(run))
    for baseline in sorted(needed.keys() - present):
        yield (
            f"{where}.baselines: missing '{baseline}', the frozen baseline of {listed(needed[baseline])};"
            " add it to the list."
        )
