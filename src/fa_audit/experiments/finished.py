"""Which results of a configuration are there, and of today's specification, data and code. Imports no torch."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass, field
from typing import Any

from fa_audit.core.errors import AuditError
from fa_audit.core.files import FOREIGN, read_json, sha256_of
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.lineage import RECORD, Lineage
from fa_audit.experiments.paths import RunKey, data_file

OF_A_NETWORK = (("checkpoints", "safetensors"), ("checkpoints", "json"), ("trajectories", "csv"))


@dataclass(frozen=True)
class Finished:
    """What needs not be done again.

    A result that has no record of what it was made by (`Lineage`), as of an earlier version of this package, counts by
    its specification alone.

    Attributes:
        lineage: what results should be made by.
    """

    lineage: Lineage
    _known: dict[Any, Any] = field(default_factory=dict)

    def network(self, key: RunKey) -> bool:
        """Return whether a trained network is there and not stale, and so is what it is copied or goes on from."""
        if key not in self._known:
            grid = self.lineage.grid
            source = grid.duplicate_runs.get(key) or previous_run(grid, key)
            self._known[key] = (source is None or self.network(source)) and self._own_network(key)
        return bool(self._known[key])

    def audit(self, key: RunKey) -> bool:
        """Return whether an audit is there and not stale, and so are the networks that it reads."""
        if not all(self.network(network) for network in self.lineage.networks(key)):
            return False
        facts = _facts(key.path("audits", "json"))
        recorded = facts.get("lineage")
        return self._same_spec(facts, key) and (recorded is None or recorded == self.lineage.audit(key))

    def _own_network(self, key: RunKey) -> bool:
        if not all(os.path.exists(key.path(*kind)) for kind in OF_A_NETWORK):
            return False
        facts = _facts(key.path("checkpoints", "json"))
        if (run := facts.get("previous")) and not os.path.exists(key._replace(run=run).path(*OF_A_NETWORK[0])):
            return False
        made_from, _, recorded = str(facts.get("fingerprint")).partition(RECORD)
        if not self._same_spec(facts, key) or not recorded:
            return self._same_spec(facts, key)
        return recorded == self.lineage.network(key) and self._data(key) in ("", *made_from.split())

    def _same_spec(self, facts: dict[str, Any], key: RunKey) -> bool:
        return facts.get("spec") == self.lineage.grid.spec(key).to_dict()

    def _data(self, key: RunKey) -> str:
        """Return what a fingerprint holds of the data set's file, which is read once; empty where there is none."""
        path = data_file(self.lineage.grid.spec(key).dataset)
        if path not in self._known:
            there = os.path.exists(path)
            self._known[path] = hashlib.sha256(sha256_of(path).encode()).hexdigest() if there else ""
        return str(self._known[path])


def previous_run(grid: Grid, key: RunKey) -> RunKey | None:
    """Return the snapshot that a training goes on from, if any; of one that is done, that from which it went on.

    So neither a snapshot that is asked for later nor one that is no longer asked for makes a finished run stale.
    """
    asked, facts = grid.previous_runs.get(key), _facts(key.path("checkpoints", "json"))
    found = key._replace(run=run) if (run := facts.get("previous")) else None
    if found == asked or facts.get("spec") != grid.spec(key).to_dict():  # the same, or it is to be trained anew
        return asked
    return found if found is None or os.path.exists(found.path(*OF_A_NETWORK[0])) else asked


def _facts(path: str) -> dict[str, Any]:
    """Return a result's JSON; nothing where it is missing or damaged, hence to be made again."""
    with contextlib.suppress(AuditError, OSError, *FOREIGN):
        return dict(read_json(path))
    return {}
