"""Origins of a configuration's results: what each is made from, and which of those that are there
are stale.

An origin is a digest of specification, code, thresholds, and the origins of what the result is made
from. Imports no torch.
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
    """Return a digest of the code that a stage runs for one network, its method and architecture
    included.
    """
    method = entry_of("method", METHODS, spec.method)
    return code_digest(name, method, entry_of("architecture", ARCHITECTURES, spec.architecture))


@dataclass(frozen=True)
class Origins:
    """The origins that the results of a configuration should have."""

    grid: Grid
    thresholds: Mapping[str, float]  # of the checks
    _known: dict[Any, str] = field(default_factory=dict)

    def network(self, key: RunKey) -> str:
        """Return the origin of a trained network: its specification, the training's code, the code
        of its data.
        """
        if key not in self._known:
            spec = self.grid.spec(key)
            self._known[key] = digest_of(
                [spec.digest, run_code("train", spec), data_code(spec.dataset)]
            )
        return self._known[key]

    def networks(self, key: RunKey) -> list[RunKey]:
        """Return the networks that an audit reads: the audited one, then those that it is compared
        with.
        """
        baselines = self.grid.setting(key.setting).baselines_of(key.run).values()
        return [key, *(key._replace(run=run) for run in baselines)]

    def audit_inputs(self, key: RunKey) -> str:
        """Return one origin of the networks that an audit reads."""
        return digest_of([self.network(network) for network in self.networks(key)])

    def audit(self, key: RunKey) -> str:
        """Return the origin of an audit: its code, thresholds, and the networks that it reads."""
        return digest_of(
            [run_code("audit", self.grid.spec(key)), self.audit_inputs(key), dict(self.thresholds)]
        )

    def audits(self, keys: Iterable[RunKey]) -> str:
        """Return one origin of several audits."""
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

    A result without a recorded origin, as earlier versions of this package wrote, counts by its
    specification alone.

    Attributes:
        torch: the versions of torch that trained the networks that were found finished, and how
            many each.
    """

    origins: Origins
    torch: Counter[str] = field(default_factory=Counter)
    _known: dict[Any, Any] = field(default_factory=dict)

    def network(self, key: RunKey) -> bool:
        """Return whether a trained network is there and not stale, and likewise what it is copied
        from.
        """
        if key not in self._known:
            source = self.origins.grid.duplicate_runs.get(key)
            self._known[key] = (source is None or self.network(source)) and self._own_network(key)
        return bool(self._known[key])

    def audit(self, key: RunKey) -> bool:
        """Return whether an audit and the networks that it reads are there and not stale."""
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
        """Return the digest of the data set's file in `training_origin`; empty where there is no
        such file.
        """
        path = data_file(self.origins.grid.spec(key).dataset)
        if path not in self._known:
            self._known[path] = contents_digest([path]) if os.path.exists(path) else ""
        return str(self._known[path])


def facts_of(path: str) -> dict[str, Any]:
    """Return a result's JSON; empty where it is missing or damaged and so must be made again."""
    with contextlib.suppress(AuditError, OSError, *FOREIGN):
        return dict(read_json(path))
    return {}
