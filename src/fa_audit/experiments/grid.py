"""From a configuration to the list of runs it asks for. Imports no torch, so that planning stays fast."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from math import prod
from typing import Any

from fa_audit.core.errors import AuditError, listed, unknown
from fa_audit.core.registry import class_literals, entry_of
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.data import DATASETS
from fa_audit.experiments.models import model_problems
from fa_audit.experiments.schema import plain_problems, refusal, schema_problems, some
from fa_audit.experiments.spec import Run, RunSpec, parse_run, short_number
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURE_OPTIONS, ARCHITECTURES
from fa_audit.results.figures import FIGURES, FIGURES_OF_ONE
from fa_audit.results.tables import TABLES, TABLES_OF_ONE

LARGEST_OPTION = 8192
LARGEST_GRID = 50_000  # runs: Snakemake's plan takes about 80 kB of memory for each, so 4 GB
BUDGET = ("epochs", "batch_size", "lr", "weight_decay")
MONITOR_LIMITS = {"D1": "growth", "D2": "reference"}  # check -> its threshold
Cell = tuple[str, str, int]  # setting, run, seed


@dataclass(frozen=True)
class Setting:
    """One experimental setting: a network, a data set and a budget, and the runs and seeds to do in it.

    Attributes:
        name: as in every path.
        block: the block of the configuration that it comes from: of the same name unless that varies something.
        runs: names of the runs that are audited, those of the sweep and of the ladder included.
        sweep: those of them that make the penalty sweep, method by method, the penalty rising.
        baselines: names of the frozen and shallow runs that they are compared with.
        seeds: every run is done once for each.
        common: `RunSpec` fields that all runs share; the monitor is for those that are no baselines, whose
            accuracy counts with its full budget only.
    """

    name: str
    block: str
    runs: tuple[str, ...]
    sweep: tuple[str, ...]
    baselines: tuple[str, ...]
    seeds: tuple[int, ...]
    common: Mapping[str, Any]

    def spec(self, run: str, seed: int) -> RunSpec:
        """The full specification of one run.

        Raises:
            AuditError: the setting has no such run or seed.
        """
        where = f"settings.{self.name}"
        if run not in (known := (*self.runs, *self.baselines)):
            raise unknown("run", run, known, where=where)
        if seed not in self.seeds:
            raise unknown("seed", seed, map(str, self.seeds), where=where)
        depth = dict(self.common["architecture_options"])["depth"]
        asked = parse_run(run)
        common = dict(self.common) | ({"monitor": ()} if asked.is_baseline else {})
        return asked.spec(depth=depth, seed=seed, **common)

    def cells(self, kind: str) -> Iterator[Cell]:
        """``(setting, run, seed)``, sorted: every audited run ("runs"), baseline ("baselines") or "sweep" run."""
        for run in sorted(getattr(self, kind)):
            yield from ((self.name, run, seed) for seed in sorted(self.seeds))

    def baselines_of(self, run: str) -> dict[str, str]:
        """The runs that an audited run is compared with: ``own``, ``bp`` and, where configured, ``shallow``.

        The own baseline carries no penalty, which acts on blocks only, and learns from the true targets. A baseline
        that is audited itself is compared with nothing.
        """
        if parse_run(run).is_baseline:
            return {}
        roles = {"own": own_baseline(run), "bp": "bp+frozen", "shallow": "bp+shallow"}
        return {role: name for role, name in roles.items() if name in self.baselines}


def own_baseline(run: str) -> str:
    """The frozen baseline of a run: blocks at initialisation, embedding taught by the same method."""
    return str(Run(method=parse_run(run).method, frozen=-1))


@dataclass(frozen=True)
class Grid:
    """Every setting of a configuration, by name."""

    settings: Mapping[str, Setting]

    def setting(self, name: str) -> Setting:
        """A setting by name.

        Raises:
            AuditError: there is no such setting.
        """
        if name not in self.settings:
            raise unknown("setting", name, self.settings, where="config")
        return self.settings[name]

    def named(self, names: Iterable[str]) -> list[str]:
        """Settings by their own name or their block's, in the order of the names."""
        found = [
            setting for name in names for setting in self.settings.values() if name in (setting.name, setting.block)
        ]
        return list(dict.fromkeys(setting.name for setting in found))

    def cells(self, kind: str) -> Iterator[Cell]:
        """The cells of every setting, as `Setting.cells` gives them, sorted."""
        for _, setting in sorted(self.settings.items()):
            yield from setting.cells(kind)

    def all_cells(self) -> Iterator[Cell]:
        """Every run and baseline once, in the order of the configuration."""
        for setting in self.settings.values():
            yield from dict.fromkeys((*setting.cells("runs"), *setting.cells("baselines")))

    @cached_property
    def twins(self) -> Mapping[Cell, Cell]:
        """Cells that need no training of their own, each with the first cell that trains the same specification."""
        first: dict[RunSpec, Cell] = {}
        found = {}
        for cell in self.all_cells():
            setting, run, seed = cell
            original = first.setdefault(self.settings[setting].spec(run, seed), cell)
            if original != cell:
                found[cell] = original
        return found


def read_grid(config: Mapping[str, Any], schema: Mapping[str, Any]) -> Grid:
    """Check a configuration and expand it.

    Args:
        config: the parsed configuration file.
        schema: its JSON schema; the description of a value says what is expected there.

    Raises:
        AuditError: one message that lists the problems (the first five), each with its place, what was found
            and what is valid.
    """
    problems = some(plain_problems(config)) or some(schema_problems(config, schema))
    blocks = {} if problems else config.get("settings", {})  # a configuration may hold models alone
    problems = problems or some(_grid_size_problems(blocks)) or some(_variation_problems(blocks))
    settings = {} if problems else expanded(blocks)
    problems = problems or some(_value_problems(settings, schema)) or some(_name_problems(config, settings))
    if problems:
        raise refusal("config", problems)
    monitor = _monitor(config)
    return Grid({name: _setting(name, block, body, monitor) for name, (block, body) in settings.items()})


def expanded(blocks: Mapping[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """The settings of a configuration: name -> (block, body).

    A block with ``vary`` stands for one setting for every combination of the values, named after them:
    ``depth_sweep`` with ``vary: {depth: [2, 4]}`` gives ``depth_sweep_depth2`` and ``depth_sweep_depth4``.
    """
    settings = {}
    for block, body in blocks.items():
        varied = body.get("vary", {})
        for values in product(*varied.values()):
            chosen = dict(zip(varied, values))
            name = "_".join([block, *(f"{option}{str(value).lower()}" for option, value in chosen.items())])
            settings[name] = (block, _varied(body, chosen))
    return settings


def _varied(body: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a setting with the chosen values in the place of its own."""
    budget = {key: value for key, value in chosen.items() if key in BUDGET}
    options = {key: value for key, value in chosen.items() if key not in BUDGET}
    kept = {key: value for key, value in body.items() if key != "vary"}
    return kept | budget | {"architecture": body["architecture"] | options}


def _grid_size_problems(blocks: Mapping[str, Any]) -> Iterator[str]:
    """Grids that no plan can hold, counted without being expanded."""
    sizes = {name: _size(body) for name, body in blocks.items()}
    if (size := sum(sizes.values())) > LARGEST_GRID:
        largest = max(sizes, key=lambda name: sizes[name])
        yield (
            f"settings: found {size} runs, {sizes[largest]} of them in '{largest}'; expected at most {LARGEST_GRID}, of"
            " which a plan takes 4 GB of memory. Split the configuration into several."
        )


def _size(body: Mapping[str, Any]) -> int:
    """The number of runs that a block asks for, of a ladder the longest that it can be."""
    varied, sweep = body.get("vary", {}), body.get("sweep", {"methods": [], "penalties": []})
    depths = varied.get("depth", [body["architecture"].get("depth", 1)])
    depth = max((min(value, LARGEST_OPTION) for value in depths if isinstance(value, int)), default=1)
    names = len(body.get("runs", [])) + len(body.get("baselines", [])) + depth * len(body.get("ladder", []))
    names += len(sweep["methods"]) * len(sweep["penalties"])
    names = max(1, names)  # settings without any run are expanded, too
    return prod(map(len, varied.values())) * names * len(body["seeds"])


def _variation_problems(blocks: Mapping[str, Any]) -> Iterator[str]:
    """What would make two settings the same, or two values of one option."""
    names: dict[str, str] = {}
    for block, body in blocks.items():
        yield from _varied_option_problems(f"settings.{block}.vary", body)
        for name in expanded({block: body}):
            if name in names:
                yield f"settings.{block}: makes a setting '{name}', and so does settings.{names[name]}; rename one."
            names[name] = block


def _varied_option_problems(where: str, body: Mapping[str, Any]) -> Iterator[str]:
    """Names and values under ``vary`` that are wrong, or stand outside of it, too."""
    kind = body["architecture"]["name"]
    for option, values in body.get("vary", {}).items():
        if (option in BUDGET and option in body) or option in body["architecture"]:
            yield f"{where}.{option}: given a second time outside 'vary'; keep one of them."
        elif option not in BUDGET and kind in ARCHITECTURES:
            for value in values:
                yield from _option_problems(where, kind, {option: value})


def _value_problems(settings: Mapping[str, tuple[str, dict[str, Any]]], schema: Mapping[str, Any]) -> Iterator[str]:
    """Values under ``vary`` that would be wrong in their own place."""
    for name, (block, body) in settings.items():
        if name != block:
            yield from schema_problems({"settings": {name: body}}, schema)


def _monitor(config: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """The checks that end a training early, with their limits; empty without a monitor."""
    limits = DiagnosticThresholds(**config.get("thresholds", {}))
    stop_on = config.get("monitor", {}).get("stop_on", [])
    return tuple((check, float(getattr(limits, MONITOR_LIMITS[check]))) for check in sorted(stop_on))


def _setting(name: str, block: str, body: Mapping[str, Any], monitor: tuple[tuple[str, float], ...]) -> Setting:
    architecture = dict(body["architecture"])
    kind = architecture.pop("name")
    common = {
        "dataset": body["dataset"],
        "architecture": kind,
        "architecture_options": tuple(sorted((ARCHITECTURE_OPTIONS[kind] | architecture).items())),
        "monitor": monitor,
        **{key: body[key] for key in BUDGET if key in body},
    }
    depth = dict(common["architecture_options"])["depth"]
    parts = {part: tuple(str(parse_run(run)) for run in names) for part, names in run_names(body, depth).items()}
    runs = tuple(dict.fromkeys((*parts["runs"], *parts["sweep"], *parts["ladder"])))
    return Setting(name, block, runs, parts["sweep"], parts["baselines"], tuple(body["seeds"]), common)


def run_names(body: Mapping[str, Any], depth: int) -> dict[str, list[str]]:
    """The names of a setting's runs, by the part of the configuration that asks for them.

    The sweep is every method at every penalty. The depth-utility ladder of a method is the method with its top
    ``k`` blocks trainable, k = L..1; its last rung, k = 0, is the method's frozen baseline. A setting that names no
    baselines gets those that its runs need, and the shallow network.
    """
    sweep = body.get("sweep", {"methods": [], "penalties": []})
    penalties = [f"+penalty{short_number(value)}" if value else "" for value in sorted(sweep["penalties"])]
    frozen = ["", *(f"+frozen{count}" for count in range(1, depth))]
    audited = {
        "runs": list(body.get("runs", [])),
        "sweep": [method + penalty for method in sweep["methods"] for penalty in penalties],
        "ladder": [method + rung for method in body.get("ladder", []) for rung in frozen],
    }
    return audited | {"baselines": list(body.get("baselines", _usual_baselines(audited)))}


def _usual_baselines(audited: Mapping[str, list[str]]) -> list[str]:
    """What a setting's runs are compared with if it does not say; nothing if it audits baselines only."""
    readable = [run for names in audited.values() for run in names if not _unreadable(run)]
    own = {own_baseline(run) for run in readable if not parse_run(run).is_baseline}
    return sorted(own | {"bp+frozen", "bp+shallow"}) if own else []


def _unreadable(run: str, where: str = "run") -> str:
    """What is wrong with a run's name, or nothing."""
    try:
        parse_run(run, where=where)
    except AuditError as error:
        return str(error)
    return ""


def _name_problems(config: Mapping[str, Any], settings: Mapping[str, tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Problems that a schema cannot see: names that nothing answers to, and missing baselines."""
    yield from _folder_problems(config.get("data_root", ""))
    for name, (_, body) in settings.items():
        yield from _setting_problems(f"settings.{name}", body)
    yield from model_problems(config.get("models", {}))
    runs = {run for _, body in settings.values() for run in _listed(body)}
    labelled = {*runs, *settings}
    for name in sorted(set(config.get("labels", {})) - labelled):
        yield str(unknown("run or setting", name, labelled, where="labels"))
    answering = _answering(settings)
    for kind, registry in (("figures", FIGURES), ("tables", TABLES)):
        for name, body in config.get(kind, {}).items():
            yield from _artefact_problems(
                f"{kind}.{name}", body.get("kind", name), body["settings"], registry, answering
            )


def _answering(settings: Mapping[str, tuple[str, Any]]) -> dict[str, list[str]]:
    """The settings that answer to a name: by their own, and by their block's."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, (block, _) in settings.items():
        for called in dict.fromkeys((name, block)):
            found[called].append(name)
    return found


def _folder_problems(data_root: str) -> Iterator[str]:
    if data_root.startswith("~") and os.path.expanduser(data_root) == data_root:
        yield f"data_root: found '{data_root}', and nobody of that name has a home here; write the whole path."


def _artefact_problems(
    where: str, kind: str, named: list[str], registry: Mapping[str, str], answering: Mapping[str, list[str]]
) -> Iterator[str]:
    """What is wrong with a figure or a table: its kind, or the settings that it reads."""
    if kind not in registry:
        yield str(unknown(where.partition("s.")[0], kind, registry, where=where))
        return
    for name in sorted(name for name in named if name not in answering):
        yield str(unknown("setting", name, answering, where=f"{where}.settings"))
    if kind in FIGURES_OF_ONE | TABLES_OF_ONE:
        found = dict.fromkeys(chain.from_iterable(answering.get(name, ()) for name in named))
        if len(found) > 1:
            yield f"{where}.settings: found {listed(found)}; a figure or table of kind {kind} shows one setting."


def _listed(body: Mapping[str, Any]) -> Iterator[str]:
    """Every run name of a setting; none if its architecture is unknown, which is reported on its own."""
    options = ARCHITECTURE_OPTIONS.get(body["architecture"]["name"], {}) | body["architecture"]
    if type(depth := options.get("depth")) is int:
        for names in run_names(body, min(depth, LARGEST_OPTION)).values():
            yield from names


def _setting_problems(where: str, body: Mapping[str, Any]) -> Iterator[str]:
    kind = body["architecture"]["name"]
    if body["dataset"] not in DATASETS:
        yield str(unknown("dataset", body["dataset"], DATASETS, where=f"{where}.dataset"))
    if kind not in ARCHITECTURES:
        yield str(unknown("architecture", kind, ARCHITECTURES, where=f"{where}.architecture.name"))
        return
    if wrong := list(_option_problems(f"{where}.architecture", kind, body["architecture"])):
        yield from wrong
        return
    depth = (ARCHITECTURE_OPTIONS[kind] | body["architecture"])["depth"]
    parts = run_names(body, depth)
    problems = [problem for part, names in parts.items() for problem in _run_problems(f"{where}.{part}", names, depth)]
    audited = [*parts["runs"], *parts["sweep"], *parts["ladder"]]
    if not audited:
        problems.append(f"{where}: nothing to audit; expected runs, a sweep or a ladder.")
    yield from problems or _baseline_problems(where, audited, parts["baselines"])


def _option_problems(where: str, kind: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Options that the architecture does not have, or whose type or size is not that of their default."""
    for option, value in options.items():
        if option == "name":
            continue
        if option not in ARCHITECTURE_OPTIONS[kind]:
            yield str(unknown(f"option of {kind}", option, ARCHITECTURE_OPTIONS[kind], where=where))
        elif type(value) is not type(default := ARCHITECTURE_OPTIONS[kind][option]):
            yield f"{where}.{option}: found {value!r}; expected a {type(default).__name__} such as {default}."
        elif type(value) is int and not 1 <= value <= LARGEST_OPTION:
            yield f"{where}.{option}: found {value}; expected an integer 1..{LARGEST_OPTION}."


def _run_problems(where: str, names: list[str], depth: int) -> Iterator[str]:
    """What is wrong with a list of run names."""
    seen: dict[str, str] = {}
    for text in names:
        if problem := _unreadable(text, where) or _run_problem(text, where, depth, seen):
            yield problem


def _run_problem(text: str, where: str, depth: int, seen: dict[str, str]) -> str:
    run = parse_run(text)
    if problem := _method_problem(run.method):
        return f"{where}: {problem}"
    if run.frozen > depth:
        return f"{where}: '{text}' freezes {run.frozen} blocks; the network has {depth}."
    if where.endswith("baselines") and not run.is_baseline:
        return f"{where}: '{text}' is no baseline; expected '+frozen' or '+shallow', or list it under runs."
    if str(run) in seen:
        return f"{where}: '{text}' and '{seen[str(run)]}' are the same run; keep one."
    seen[str(run)] = text
    return ""


def _method_problem(name: str) -> str:
    """Why a method cannot be trained with; one outside the registry must be a class in a file that can be found."""
    try:
        class_literals(entry_of("method", METHODS, name))
    except AuditError as error:
        return str(error)
    return ""


def _baseline_problems(where: str, audited: list[str], baselines: list[str]) -> Iterator[str]:
    """Every audited run needs its own frozen baseline and backpropagation's, or depth utility means nothing."""
    present = {str(parse_run(text)) for text in baselines}
    needed: dict[str, list[str]] = {}
    compared = [str(run) for run in map(parse_run, audited) if not run.is_baseline]
    for text in dict.fromkeys(compared):
        for baseline in dict.fromkeys((own_baseline(text), "bp+frozen")):
            needed.setdefault(baseline, []).append(text)
    for baseline in sorted(set(needed) - present):
        yield (
            f"{where}.baselines: missing '{baseline}', the frozen baseline of {listed(needed[baseline])};"
            " add it to the list."
        )
