"""Compute the origin of every result, and find results that are stale. Imports no torch.

An origin is a digest of a result's specification, code, thresholds, and its inputs' origins.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fa_audit.core.errors import AuditError
from fa_audit.core.files import FOREIGN, contents_digest, digest_of, read_json
from fa_audit.core.registry import entry_of
from fa_audit.core.stages import code_digest
from fa_audit.data import DATASETS
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.paths import RECORD, RunKey, data_file
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES

OF_A_NETWORK = (("checkpoints", "safetensors"), ("checkpoints", "json"), ("trajectories", "csv"))


def data_code(dataset: str) -> str:
    """Return a digest of the code that makes a data set."""
    return code_digest("prepare_data", entry_of("dataset", DATASETS, dataset))


def run_code(name: str, spec: RunSpec) -> str:
    """Return a digest of a stage's code for one network, with that of its method and architecture."""
    method = entry_of("method", METHODS, spec.method)
    return code_digest(name, method, entry_of("architecture", ARCHITECTURES, spec.architecture))


@dataclass(frozen=True)
class Origins:
    """The origins that a configuration's results should have."""

    grid: Grid
    thresholds: Mapping[str, float]  # of the checks
    _known: dict[Any, str] = field(default_factory=dict)

    def network(self, key: RunKey) -> str:
        """Return the origin of a trained network: specification, code of the training and of its
        data.
        """
        if key not in self._known:
            spec = self.grid.spec(key)
            self._known[key] = digest_of(
                [spec.digest, run_code("train", spec), data_code(spec.dataset)]
            )
        return self._known[key]

    def networks(self, key: RunKey) -> list[RunKey]:
        """Return the networks that an audit reads: the audited one, then its baselines."""
        baselines = self.grid.setting(key.setting).baselines_of(key.run).values()
        return [key, *(key._replace(run=run) for run in baselines)]

    def audit_inputs(self, key: RunKey) -> str:
        """Return one origin for all networks that an audit reads."""
        return digest_of([self.network(network) for network in self.networks(key)])

    def audit(self, key: RunKey) -> str:
        """Return the origin of an audit: its code, thresholds, and the networks that it reads."""
        return digest_of(
            [run_code("audit", self.grid.spec(key)), self.audit_inputs(key), dict(self.thresholds)]
        )

    def audits(self, keys: Iterable[RunKey]) -> str:
        """Return one origin for several audits."""
        codes = [code_digest(name) for name in ("share_run", "collect_baseline")]
        parts = [
            [*key, run_code("audit", self.grid.spec(key)), self.audit_inputs(key)] for key in keys
        ]
        return digest_of([codes, dict(self.thresholds), parts])

    def tidy(self, setting: str) -> str:
        """Return the origin of a setting's tidy tables."""
        if setting not in self._known:
            keys = self.grid.setting(setting).run_keys("runs")
            self._known[setting] = digest_of([code_digest("tidy_setting"), self.audits(keys)])
        return self._known[setting]


@dataclass(frozen=True)
class Finished:
    """Finished work, which need not be done again.

    A result without a recorded origin, from an earlier version of this package, is compared by its
    specification alone.

    Attributes:
        torch: how many of the finished networks each version of torch has trained.
    """

    origins: Origins
    torch: Counter[str] = field(default_factory=Counter)
    _known: dict[Any, Any] = field(default_factory=dict)

    def network(self, key: RunKey) -> bool:
        """Return whether a network is trained and not stale; a copy depends on its original, too."""
        if key not in self._known:
            source = self.origins.grid.duplicate_runs.get(key)
            self._known[key] = (source is None or self.network(source)) and self._own_network(key)
        return bool(self._known[key])

    def audit(self, key: RunKey) -> bool:
        """Return whether an audit and the networks that it reads exist and are not stale."""
        if not all(self.network(network) for network in self.origins.networks(key)):
            return False
        facts = facts_of(key.path("audits", "json"))
        same = facts.get("lineage") in (None, self.origins.audit(key))
        return same and self._same_spec(facts, key)

    def _own_network(self, key: RunKey) -> bool:
        if not all(os.path.exists(key.path(*kind)) for kind in OF_A_NETWORK):
            return False
        facts = facts_of(key.path("checkpoints", "json"))
        bits, _, origin = str(facts.get("fingerprint")).partition(RECORD)
        same = not origin or (
            origin == self.origins.network(key) and self._data(key) in ("", *bits.split())
        )
        if not (same and self._same_spec(facts, key)):
            return False
        self.torch[facts.get("provenance", {}).get("packages", {}).get("torch", "unknown")] += 1
        return True

    def _same_spec(self, facts: dict[str, Any], key: RunKey) -> bool:
        return facts.get("spec") == self.origins.grid.spec(key).to_dict()

    def _data(self, key: RunKey) -> str:
        """Return the digest of the data set's file; empty if there is no such file."""
        path = data_file(self.origins.grid.spec(key).dataset)
        if path not in self._known:
            self._known[path] = contents_digest([path]) if os.path.exists(path) else ""
        return str(self._known[path])


def facts_of(path: str) -> dict[str, Any]:
    """Return a result's JSON; empty if it is missing or damaged, and must be made again."""
    with contextlib.suppress(AuditError, OSError, *FOREIGN):
        return dict(read_json(path))
    return {}
