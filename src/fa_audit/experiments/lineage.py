"""Digests of what results are made by: specifications, and the code of every stage before them. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fa_audit.core.code import code_digest, digest_of
from fa_audit.core.registry import entry_of
from fa_audit.data import DATASETS
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES

RECORD = " lineage="  # before a network's digest, at the end of the fingerprint in its sidecar


def stage(name: str, *modules: str) -> tuple[str, ...]:
    """Return what decides the code of a stage: its script and the modules ``package.module[:Object]`` it loads."""
    return (f"workflow_scripts/{name}.py", *(module.partition(":")[0] for module in modules))


def data_stage(dataset: str) -> tuple[str, ...]:
    """Return what decides the code that makes a data set."""
    return stage("prepare_data", entry_of("dataset", DATASETS, dataset))


def run_code(name: str, spec: RunSpec) -> str:
    """Return a digest of the code that a stage runs for one network, its method and architecture included."""
    method = entry_of("method", METHODS, spec.method)
    return code_digest(*stage(name, method, entry_of("architecture", ARCHITECTURES, spec.architecture)))


@dataclass(frozen=True)
class Lineage:
    """Digests of what the results of a configuration are made by.

    Attributes:
        grid: its runs.
        thresholds: its thresholds of the checks.
    """

    grid: Grid
    thresholds: Mapping[str, float]

    @cached_property
    def _known(self) -> dict[Any, str]:
        return {}

    def network(self, key: RunKey) -> str:
        """Return a digest of what decides a trained network: specification, training code, code of its data."""
        if key not in self._known:
            spec = self.grid.spec(key)
            self._known[key] = digest_of([spec.digest, run_code("train", spec), code_digest(*data_stage(spec.dataset))])
        return self._known[key]

    def networks(self, key: RunKey) -> list[RunKey]:
        """Return the networks that an audit reads: the audited one, then those that it is compared with."""
        baselines = self.grid.setting(key.setting).baselines_of(key.run).values()
        return [key, *(key._replace(run=run) for run in baselines)]

    def audit_inputs(self, key: RunKey) -> str:
        """Return a digest of what decides the networks that an audit reads."""
        return digest_of([self.network(network) for network in self.networks(key)])

    def audit(self, key: RunKey) -> str:
        """Return a digest of what decides an audit: its code and thresholds, and the networks that it reads."""
        return digest_of([run_code("audit", self.grid.spec(key)), self.audit_inputs(key), dict(self.thresholds)])

    def audits(self, keys: Iterable[RunKey]) -> str:
        """Return a digest of what decides audits."""
        codes = [code_digest(*stage(name)) for name in ("share_run", "collect_baseline")]
        parts = [[*key, run_code("audit", self.grid.spec(key)), self.audit_inputs(key)] for key in keys]
        return digest_of([codes, dict(self.thresholds), parts])

    def tidy(self, setting: str) -> str:
        """Return a digest of what decides the tidy tables of a setting."""
        if setting not in self._known:
            keys = self.grid.setting(setting).run_keys("runs")
            self._known[setting] = digest_of([code_digest(*stage("tidy_setting")), self.audits(keys)])
        return self._known[setting]
