"""Origins of a configuration's results: digests of what each is made from.

An origin is a digest of specification, code and thresholds, and of the origins of the result's
inputs. It is a parameter of the workflow's jobs, so that Snakemake notices changes
(docs/workflow.md).
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from fa_audit.core.files import digest_of
from fa_audit.core.registry import entry_of
from fa_audit.core.stages import code_digest
from fa_audit.data import DATASETS
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES


def data_code(dataset: str) -> str:
    """Return a digest of the code that makes a data set."""
    return code_digest("prepare_data", entry_of("dataset", DATASETS, dataset))


def run_code(stage: str, spec: RunSpec) -> str:
    """Return a digest of the code that a stage runs for one network, its method and architecture
    included.
    """
    method = entry_of("method", METHODS, spec.method)
    return code_digest(stage, method, entry_of("architecture", ARCHITECTURES, spec.architecture))


# eq=False: the caches tell objects apart, not grids.
@dataclass(frozen=True, eq=False)
class Origins:
    """The origins that a configuration's results should have if they are up to date."""

    grid: Grid
    thresholds: Mapping[str, float]

    @cache  # noqa: B019 a process has one grid; audits share baselines, and figures share settings
    def network(self, key: RunKey) -> str:
        """Return the digest of a network's specification and the code of its training and data."""
        spec = self.grid.spec(key)
        return digest_of([spec.digest, run_code("train", spec), data_code(spec.dataset)])

    def networks(self, key: RunKey) -> list[RunKey]:
        """Return the networks that an audit reads: the audited one, then its baselines."""
        baselines = self.grid.setting(key.setting).baselines_of(key.run).values()
        return [key, *(key._replace(run=run) for run in baselines)]

    def audit_inputs(self, key: RunKey) -> str:
        """Return one digest for all networks that an audit reads."""
        return digest_of([self.network(network) for network in self.networks(key)])

    def audits(self, keys: Iterable[RunKey]) -> str:
        """Return one digest of everything that the audits of `keys` are made from."""
        codes = [code_digest("share_run"), code_digest("collect_baseline")]
        parts = []
        for key in keys:
            parts.append([*key, run_code("audit", self.grid.spec(key)), self.audit_inputs(key)])
        return digest_of([codes, dict(self.thresholds), parts])

    @cache  # noqa: B019
    def tidy(self, setting: str) -> str:
        """Return the digest of everything that a setting's tidy tables are made from."""
        keys = self.grid.setting(setting).run_keys("runs")
        return digest_of([code_digest("tidy_setting"), self.audits(keys)])
