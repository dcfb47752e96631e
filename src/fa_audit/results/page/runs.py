"""The runs on the page, each judged over its seeds. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fa_audit.documents.document import Document
from fa_audit.documents.formats import Number
from fa_audit.protocol.judge import FOUR, THREE, Finding, Judgement
from fa_audit.results.own_audits import names_of, read_own
from fa_audit.results.reporting import report
from fa_audit.results.statistics import summarise


@dataclass(frozen=True)
class PageRun:
    """A run of a setting, judged over its seeds.

    Attributes:
        setting, name: names on the page.
        judgement: the judgement of its audits.
    """

    setting: str
    name: str
    judgement: Judgement

    @property
    def result(self) -> str:
        """Return the verdict without its reasons: PASS, FAIL or INCOMPLETE."""
        return THREE.words[self.judgement.against(THREE)]

    @property
    def checks(self) -> list[Finding]:
        """Return the findings of the four-check verdict."""
        return [self.judgement[name] for name in FOUR.checks]

    @property
    def accuracy(self) -> Number:
        """Return the accuracy in percent."""
        return _percent([audit.headline_acc for audit in self.judgement.networks])

    @property
    def margin(self) -> Number:
        """Return the margin over the frozen baseline in points."""
        values = [audit.checks["depth"].value for audit in self.judgement.networks]
        return _percent(values, signed=True)

    @property
    def is_baseline(self) -> bool:
        """Return whether the run is for comparison only: no block was trained."""
        audit = self.judgement.networks[0]
        spec = audit.spec
        if spec is None:
            return False
        blocks = len(audit.layers) - 1
        untrained = 0 in (spec["epochs"], spec.get("snapshot"))
        return bool(spec["shallow"] or spec["frozen_blocks"] >= blocks or untrained)

    @property
    def evidence(self) -> Document:
        """Return the report of the run's audits; the page shows its sections."""
        return report(self.judgement)


def _percent(fractions: Sequence[float | None], *, signed: bool = False) -> Number:
    """Return mean and deviation of the known fractions in percent."""
    known = [100 * value for value in fractions if value is not None and math.isfinite(value)]
    if not known:
        return Number(None)
    summary = summarise(known)
    return Number(
        summary.mean, 1, summary.deviation, signed, measured=len(known), of=len(fractions)
    )


def read_runs(
    paths: Sequence[str | Path], labels: Mapping[str, str] | None = None
) -> list[PageRun]:
    """Read audits in any order, and group those of one run over its seeds.

    Args:
        paths: JSON files, one for each network.
        labels: printed names of settings and runs.

    Returns:
        The runs: settings in the order of the files, and within each the largest margin first.

    Raises:
        AuditError: see `read_own`.
    """
    labels = labels or {}
    runs = []
    for group in read_own(paths):
        setting, name = names_of(group.networks[0])
        runs.append(PageRun(labels.get(setting, setting), labels.get(name, name), group))
    order = list(dict.fromkeys(run.setting for run in runs))

    def place(run: PageRun) -> tuple[int, float]:
        margin = run.margin.value
        return order.index(run.setting), math.inf if margin is None else -margin

    return sorted(runs, key=place)
