"""Check a configuration and expand it into its grid. Imports no torch.

`fa_audit.experiments.config` checks types and ranges; this checks that the parts fit together.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fa_audit.core.errors import AuditError, listed, unknown
from fa_audit.core.registry import check_function
from fa_audit.core.validation import config_error, validated
from fa_audit.data import WITHOUT_FILES
from fa_audit.experiments.config import BUDGET, Artefact, Configuration, SettingEntry
from fa_audit.experiments.config_file import LineOf
from fa_audit.experiments.grid import Grid, Setting
from fa_audit.experiments.paths import data_file
from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.limits import DiagnosticThresholds

# The limit of every check that ends a training.
MONITOR_LIMITS = {"D1": "growth", "D2": "reference", "D2@1024": "reference"}
NO_LINES = LineOf()
LARGEST_GRID = 50_000  # runs: a plan takes about 50 kB of memory for each, so 2.5 GB


@dataclass(frozen=True)
class ArtefactKinds:
    """Registries of figures and tables."""

    figures: Mapping[str, str]
    tables: Mapping[str, str]
    single_setting: Collection[str]  # the kinds of both that show one setting


def read_grid(config: Any, kinds: ArtefactKinds | None = None, where: LineOf = NO_LINES) -> Grid:
    """Check a configuration and expand it.

    >>> entry = {"dataset": "digits", "architecture": {"name": "resmlp"}, "seeds": [1, 2]}
    >>> grid = read_grid({"settings": {"a": entry | {"runs": ["dfa"]}}})
    >>> [str(key) for key in grid.run_keys("runs")]
    ['a/dfa/seed1', 'a/dfa/seed2']
    >>> grid.setting("a").baselines
    ('bp+frozen', 'bp+shallow', 'dfa+frozen')

    Args:
        kinds: the known kinds of figures and tables; without it they are not checked.
        where: the line of every value in the file, as `load_config` returns it.

    Raises:
        AuditError: one message that lists the problems (the first five), each with its place, what
            was found and what is valid.
    """
    asked = validated(Configuration, config, "config", where)
    settings: dict[str, Setting] = {}
    problems = []
    size = 0
    for block, entry in asked.settings.items():
        try:
            for name, variant in entry.variants(block):
                size += variant.size
                _check(size <= LARGEST_GRID, f"more than {LARGEST_GRID} runs; split the file")
                _check(name not in settings, f"a second setting '{name}'; rename one")
                settings[name] = _setting(name, block, variant, asked)
                _check_runs(settings[name])
        except AuditError as error:
            problems.append(f"settings.{block}: {error}")
    grid = Grid(settings)
    if not problems:
        problems = [*_label_problems(asked, grid), *_artefact_problems(asked, grid, kinds)]
    if problems:
        raise config_error("config", problems, where)
    return grid


def _check(good: bool, problem: str) -> None:
    if not good:
        raise AuditError(f"{problem}.")


def _setting(name: str, block: str, entry: SettingEntry, config: Configuration) -> Setting:
    limits = DiagnosticThresholds.of(config.thresholds).limits
    checks = sorted(entry.monitor.stop_on or config.monitor.stop_on)
    common = {
        "dataset": entry.dataset,
        "architecture": entry.architecture.name,
        "architecture_options": tuple(sorted(entry.architecture.options.items())),
        "monitor": tuple((check, limits[MONITOR_LIMITS[check]]) for check in checks),
        **{key: getattr(entry, key) for key in BUDGET},
    }
    return Setting(
        name,
        block,
        runs=tuple(entry.audited_runs()),
        sweep=tuple(entry.sweep_runs()),
        baselines=tuple(entry.baseline_runs()),
        seeds=tuple(entry.seeds),
        common=common,
    )


def _check_runs(setting: Setting) -> None:
    """Check that a setting's runs are possible, and that it has their baselines."""
    _check(bool(setting.runs), "nothing to audit; expected runs, a sweep or a ladder")
    depth, epochs = dict(setting.common["architecture_options"])["depth"], setting.common["epochs"]
    needed: dict[str, str] = {}
    for name in (*setting.runs, *setting.baselines):
        run = parse_run(name)
        _check(run.frozen <= depth, f"'{run}' freezes more blocks than the network has, {depth}")
        _check(
            run.snapshot is None or run.snapshot < epochs,
            f"'{run}' is no snapshot; the last epoch is {epochs}",
        )
        setting.spec(name, setting.seeds[0])
        # Without both frozen baselines depth utility means nothing.
        for role in () if run.is_baseline else ("own", "bp"):
            needed.setdefault(str(run.baselines[role]), name)
    for baseline in sorted(needed.keys() - set(setting.baselines)):
        raise AuditError(
            f"baselines lack '{baseline}', with which '{needed[baseline]}' is compared."
        )


def _label_problems(config: Configuration, grid: Grid) -> Iterator[str]:
    known = set(grid.settings)
    for setting in grid.settings.values():
        for run in (*setting.runs, *setting.baselines):
            known |= {run, parse_run(run).method}  # by which sweeps are labelled
    for name in sorted(config.labels.keys() - known):
        yield str(unknown("run or setting", name, known, where="labels"))


def _artefact_problems(
    config: Configuration, grid: Grid, kinds: ArtefactKinds | None
) -> Iterator[str]:
    """Yield a problem for every figure or table with an unknown kind, setting or run."""
    for section in ("figures", "tables") if kinds else ():
        for name, artefact in getattr(config, section).items():
            kind, where = artefact.kind or name, f"{section}.{name}"
            try:
                check_function(section.removesuffix("s"), getattr(kinds, section), kind)
                _check_artefact(artefact, grid, kind in kinds.single_setting)
            except AuditError as error:
                yield f"{where}: {error}"


def _check_artefact(artefact: Artefact, grid: Grid, of_one: bool) -> None:
    found: list[str] = []
    for name in artefact.settings:
        if not grid.named([name]):
            raise unknown("setting", name, {setting.block for setting in grid.settings.values()})
        found += grid.named([name])
    _check(not of_one or len(found) == 1, f"found {listed(found)}; expected one setting")
    known = {run for name in found for run in grid.setting(name).runs}
    for run in artefact.runs:
        if run not in known:
            raise unknown("run", run, known)


def check_data_root(root: str, datasets: Iterable[str], where: str) -> None:
    """Check that data sets which are not in results/ yet have a folder; create the default one.

    Args:
        where: the file and line of `root`; empty if unknown.

    Raises:
        AuditError: there is no such folder.
    """
    needed = set(datasets) - set(WITHOUT_FILES)
    needed = {name for name in needed if not os.path.exists(data_file(name))}
    folder, usual = os.path.expanduser(root), Configuration.model_fields["data_root"].default
    if needed and not os.path.isdir(folder) and (root != usual or os.path.exists(folder)):
        raise AuditError(
            f"{where or 'config'}: data_root: found no folder '{root}' in {os.getcwd()}; expected"
            f" one that holds, or will receive, {listed(sorted(needed))}."
        )
