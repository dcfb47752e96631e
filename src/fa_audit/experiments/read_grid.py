"""Check a configuration and expand it into its grid. Imports no torch.

`fa_audit.experiments.config` checks types and ranges; this module checks that the parts fit.
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
from fa_audit.protocol.evidence import DiagnosticThresholds

# A check that can end a training -> the name of its limit.
_MONITOR_LIMITS = {"D1": "growth", "D2": "reference", "D2@1024": "reference"}
_NO_LINES = LineOf()
# Largest number of trainings in a grid. A plan takes about 50 kB for each, so at most 2.5 GB.
_LARGEST_GRID = 50_000


@dataclass(frozen=True)
class ArtefactKinds:
    """The kinds of figures and tables: name -> the function that makes one."""

    figures: Mapping[str, str]
    tables: Mapping[str, str]
    single_setting: Collection[str]  # names of the kinds that show only one setting


def read_grid(config: Any, kinds: ArtefactKinds | None = None, where: LineOf = _NO_LINES) -> Grid:
    """Check a configuration and expand it.

    >>> entry = {"dataset": "digits", "architecture": {"name": "resmlp"}, "seeds": [1, 2]}
    >>> grid = read_grid({"settings": {"a": entry | {"runs": ["dfa"]}}})
    >>> [str(key) for key in grid.run_keys("runs")]
    ['a/dfa/seed1', 'a/dfa/seed2']
    >>> grid.setting("a").baselines
    ('bp+frozen', 'bp+shallow', 'dfa+frozen')

    Args:
        kinds: the known kinds of figures and tables; None: figures and tables are not checked.
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
                if name in settings:
                    raise AuditError(f"a second setting '{name}'; rename one or change 'vary'.")
                setting = _setting(name, block, variant, asked)
                size += len(setting.seeds) * len({*setting.runs, *setting.baselines})
                if size > _LARGEST_GRID:
                    raise AuditError(f"more than {_LARGEST_GRID} trainings; split the file.")
                _check_runs(setting)
                settings[name] = setting
        except AuditError as error:
            problems.append(f"settings.{block}: {error}")
    grid = Grid(settings)
    # Wrong settings would make their labels, figures and tables seem wrong, too.
    if not problems:
        known = set().union(*(setting.labelled for setting in settings.values()))
        for name in sorted(asked.labels.keys() - known):
            problems.append(str(unknown("run or setting", name, known, where="labels")))
        problems += _artefact_problems(asked, grid, kinds) if kinds else []
    if problems:
        raise config_error("config", problems, where)
    return grid


def _setting(name: str, block: str, entry: SettingEntry, config: Configuration) -> Setting:
    limits = DiagnosticThresholds.of(config.thresholds).limits
    checks = sorted(entry.monitor.stop_on or config.monitor.stop_on)
    common = {
        "dataset": entry.dataset,
        "architecture": entry.architecture.name,
        "architecture_options": tuple(sorted(entry.architecture.options.items())),
        "monitor": tuple((check, limits[_MONITOR_LIMITS[check]]) for check in checks),
        **{key: getattr(entry, key) for key in BUDGET},
    }
    return Setting(
        name,
        block,
        runs=tuple(entry.audited_runs()),
        baselines=tuple(entry.baseline_runs()),
        seeds=tuple(entry.seeds),
        common=common,
    )


def _check_runs(setting: Setting) -> None:
    """Check that a setting's runs are possible, and that it has the baselines they are compared
    with.
    """
    if not setting.runs:
        raise AuditError("nothing to audit; expected runs, a sweep or a ladder.")
    depth, epochs = dict(setting.common["architecture_options"])["depth"], setting.common["epochs"]
    for name in (*setting.runs, *setting.baselines):
        run = parse_run(name)
        if run.frozen > depth:
            raise AuditError(f"'{run}' freezes more blocks than the network has, {depth}.")
        if 0 < run.frozen == depth:
            raise AuditError(f"'{run}' freezes all {depth} blocks; write '+frozen'.")
        if run.snapshot is not None and run.snapshot >= epochs:
            raise AuditError(f"'{run}': a snapshot needs an epoch before the last, {epochs}.")
        # Building a specification checks its values.
        setting.spec(name, setting.seeds[0])
        if not run.is_baseline:
            # D3 needs the method's own frozen baseline, D3-strict the one of backpropagation.
            there = setting.baselines_of(name)
            for role in ("own", "bp"):
                if role not in there:
                    baseline = run.baselines[role]
                    raise AuditError(
                        f"baselines lack '{baseline}', with which '{run}' is compared."
                    )


def _artefact_problems(config: Configuration, grid: Grid, kinds: ArtefactKinds) -> Iterator[str]:
    """Yield a message for every figure or table whose kind, settings or runs are wrong."""
    sections = (("figure", config.figures, kinds.figures), ("table", config.tables, kinds.tables))
    for section, artefacts, known in sections:
        for name, artefact in artefacts.items():
            kind = artefact.kind or name
            try:
                check_function(section, known, kind)
                settings = _shown_settings(artefact, grid)
                if kind in kinds.single_setting and len(settings) > 1:
                    raise AuditError(f"found {listed(settings)}; expected one setting.")
            except AuditError as error:
                yield f"{section}s.{name}: {error}"


def _shown_settings(artefact: Artefact, grid: Grid) -> list[str]:
    """Return the settings of a figure or a table, and check that they have its runs."""
    blocks = {setting.block for setting in grid.settings.values()}
    for name in artefact.settings:
        if not grid.named([name]):
            raise unknown("setting", name, blocks)
    settings = grid.named(artefact.settings)
    runs = {run for name in settings for run in grid.setting(name).runs}
    for run in artefact.runs:
        if run not in runs:
            raise unknown("run", run, runs)
    return settings


def check_data_root(root: str, datasets: Iterable[str], where: str) -> None:
    """Check that the folder `root` exists if a data set must still be read from it or downloaded.

    The default folder may be missing: a download creates it.

    Args:
        where: the file and line of `root`; empty if unknown.

    Raises:
        AuditError: there is no such folder.
    """
    needed = []
    for name in sorted(set(datasets) - set(WITHOUT_FILES)):
        if not os.path.exists(data_file(name)):
            needed.append(name)
    folder = os.path.expanduser(root)
    is_usual = root == Configuration.model_fields["data_root"].default
    if needed and not os.path.isdir(folder) and (os.path.exists(folder) or not is_usual):
        raise AuditError(
            f"{where or 'config'}: data_root: found no folder '{root}' in {os.getcwd()}; expected"
            f" one that holds, or will receive, {listed(needed)}."
        )
