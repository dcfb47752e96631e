"""The settings of a configuration and the runs that they ask for. Imports no torch, so that
planning stays fast.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fa_audit.core.errors import AuditError, unknown
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.spec import Run, RunSpec, parse_run


@dataclass(frozen=True)
class Setting:
    """One experimental setting: a network, a data set and a budget, with its runs and seeds.

    Attributes:
        name: the setting's name in every path.
        block: name of its entry in the configuration; differs from `name` if the entry has
            ``vary``.
        runs: names of the audited runs, including those of ``sweep`` and ``ladder``.
        baselines: names of the frozen and shallow runs that `runs` are compared with.
        seeds: every run is trained once with each of these seeds.
        common: `RunSpec` fields that all runs share; baselines leave the monitor out, since their
            accuracy counts only after the full budget.
    """

    name: str
    block: str
    runs: tuple[str, ...]
    baselines: tuple[str, ...]
    seeds: tuple[int, ...]
    common: Mapping[str, Any]

    def spec(self, run: str, seed: int) -> RunSpec:
        """Return the full specification of a run, or of any snapshot of a run.

        Raises:
            AuditError: the setting has no such run or seed.
        """
        where = f"settings.{self.name}"
        known = (*self.runs, *self.baselines)
        if not self._has(known, run):
            raise unknown("run", run, known, where=where)
        if seed not in self.seeds:
            raise unknown("seed", seed, map(str, self.seeds), where=where)
        asked, common = parse_run(run), dict(self.common)
        if asked.is_baseline:
            common["monitor"] = ()
        depth = dict(self.common["architecture_options"])["depth"]
        return asked.spec(depth=depth, seed=seed, **common)

    def _has(self, names: Collection[str], run: str) -> bool:
        """Return whether `names` contain a run, or the run of which it is a snapshot."""
        if run in names:
            return True
        asked = parse_run(run)
        # Refuse the last epoch's snapshot, which is the run itself, and unusual spellings of a run:
        # both would give one network a second file.
        is_early = asked.until < self.common["epochs"]
        return is_early and str(asked.whole) in names and str(asked) == run

    def run_keys(self, kind: str) -> Iterator[RunKey]:
        """Yield every audited run ("runs") or baseline ("baselines") with every seed, sorted."""
        for run in sorted(getattr(self, kind)):
            yield from (RunKey(self.name, run, seed) for seed in sorted(self.seeds))

    @property
    def labelled(self) -> set[str]:
        """The names that can have a label here: the setting, its runs and their methods, since a
        sweep is labelled by its method.
        """
        runs = {*self.runs, *self.baselines}
        return {self.name, *runs, *(parse_run(run).method for run in runs)}

    def baselines_of(self, run: str) -> dict[str, str]:
        """Return a run's baselines by role: ``own``, ``bp`` and, if configured, ``shallow``.

        A run that is itself a baseline has none. If the setting lacks a baseline with the run's
        learning rate and normalisation, the one that names another learning rate is used, since
        networks with frozen blocks may be tuned separately.

        Raises:
            AuditError: the setting has several baselines that name another learning rate.
        """
        asked = parse_run(run)
        if asked.is_baseline:
            return {}
        found = {}
        for role, baseline in asked.baselines.items():
            if self._has(self.baselines, str(baseline)):
                found[role] = str(baseline)
                continue
            tuned = self._tuned(baseline)
            if len(tuned) > 1:
                raise AuditError(
                    f"found {' and '.join(tuned)} to compare '{run}' with; expected one."
                )
            if tuned:
                found[role] = tuned[0]
        return found

    def _tuned(self, baseline: Run) -> list[str]:
        """Return the setting's baselines that name a learning rate and differ from `baseline` in
        rate and normalisation only. If `baseline` is a snapshot, they are snapshots of its epoch.
        """
        names = []
        for listed in map(parse_run, self.baselines):
            name = str(replace(listed, snapshot=baseline.snapshot))
            same = listed.untuned.whole == baseline.untuned.whole
            if listed.lr and same and self._has(self.baselines, name) and name not in names:
                names.append(name)
        return names


@dataclass(frozen=True)
class Grid:
    """Every setting of a configuration, by name.

    >>> from fa_audit.experiments.read_grid import read_grid
    >>> entry = {"dataset": "digits", "architecture": {"name": "resmlp"}, "seeds": [1, 2]}
    >>> entry["runs"] = ["bp", "dfa"]
    >>> deep = entry | {"vary": {"depth": [2, 8]}}
    >>> grid = read_grid({"settings": {"small": entry, "deep": deep}})
    >>> grid.named(["deep"])
    ['deep_depth2', 'deep_depth8']
    >>> next(grid.run_keys("runs")), len(list(grid.all_run_keys()))
    (RunKey(setting='deep_depth2', run='bp', seed=1), 30)
    >>> grid.spec(RunKey("small", "dfa+frozen", 2)).frozen_blocks
    4
    >>> grid.setting("small").baselines_of("dfa")
    {'own': 'dfa+frozen', 'bp': 'bp+frozen', 'shallow': 'bp+shallow'}
    """

    settings: Mapping[str, Setting]

    def setting(self, name: str) -> Setting:
        """Return a setting by name.

        Raises:
            AuditError: there is no such setting.
        """
        if name not in self.settings:
            raise unknown("setting", name, self.settings, where="config")
        return self.settings[name]

    def spec(self, key: RunKey) -> RunSpec:
        """Return the full specification of a run; an unknown setting, run or seed is an error."""
        return self.setting(key.setting).spec(key.run, key.seed)

    def named(self, names: Iterable[str]) -> list[str]:
        """Return the settings in `names`, in order; an entry's name stands for all its settings."""
        found = []
        for name in names:
            for setting in self.settings.values():
                if name in (setting.name, setting.block) and setting.name not in found:
                    found.append(setting.name)
        return found

    def run_keys(self, kind: str) -> Iterator[RunKey]:
        """Yield the keys of every setting, sorted by setting; see `Setting.run_keys`."""
        for _, setting in sorted(self.settings.items()):
            yield from setting.run_keys(kind)

    def all_run_keys(self) -> Iterator[RunKey]:
        """Yield every run and baseline once, with the settings in the order of the configuration."""
        for setting in self.settings.values():
            yield from dict.fromkeys((*setting.run_keys("runs"), *setting.run_keys("baselines")))

    @cached_property
    def duplicate_runs(self) -> Mapping[RunKey, RunKey]:
        """Map every duplicate run to the first run with the same specification; only the first is
        trained.
        """
        first: dict[RunSpec, RunKey] = {}
        found = {}
        for key in self.all_run_keys():
            original = first.setdefault(self.spec(key), key)
            if original != key:
                found[key] = original
        return found
