"""The runs on the page: audits of one network over its seeds, and their verdict. Imports no torch."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fa_audit.audit.record import number, outcome_columns, read_audit
from fa_audit.documents.document import Document
from fa_audit.documents.formats import Number
from fa_audit.experiments.spec import SHARED, Run
from fa_audit.protocol.checks import CHECKS, lettered
from fa_audit.protocol.over_seeds import VerdictOverSeeds, verdict_over_seeds
from fa_audit.protocol.rules import THREE
from fa_audit.results.reporting import report
from fa_audit.results.seed_group import SeedGroup, read_seed_group
from fa_audit.results.statistics import summarise

OUTCOMES = {True: "fires", False: "passes", None: "not evaluated"}
NO_SETTING = "models"  # the setting of audits without a specification


@dataclass(frozen=True)
class PageRun:
    """One run: one method in one network, over its seeds.

    Attributes:
        setting, name: as the page calls them.
        group: its audits.
    """

    setting: str
    name: str
    group: SeedGroup

    @cached_property
    def judgement(self) -> VerdictOverSeeds:
        """Return the outcome of every check over the seeds; the page reads verdicts here only."""
        rows = []
        for audit in self.group.audits:
            rows.append(outcome_columns(audit["checks"]) | {"finite": audit["finite"]})
        return verdict_over_seeds(rows)

    @property
    def verdict(self) -> str:
        """Return the three-check verdict with its reasons, and whether it is borderline."""
        text = THREE.text(self._fires, self._finite)
        near = [
            name for letter, name in lettered().items() if self.judgement.checks[letter].borderline
        ]
        borderline = THREE.depends(self._fires, near, self._finite)
        return f"{text}, borderline" if borderline else text

    @property
    def result(self) -> str:
        """Return the verdict without its reasons: PASS, FAIL or INCOMPLETE."""
        return THREE.words[THREE.decides(self._fires, self._finite)]

    @property
    def checks(self) -> list[tuple[str, str, bool]]:
        """Return flag, outcome over the seeds, and whether it is borderline, of every check."""
        found = []
        for letter, name in lettered().items():
            check = self.judgement.checks[letter]
            found.append((CHECKS[name].flag, OUTCOMES[check.fires], check.borderline))
        return found

    @property
    def accuracy(self) -> Number:
        """Return the accuracy in percent."""
        return _percent([audit["headline_acc"] for audit in self.group.audits])

    @property
    def margin(self) -> Number:
        """Return the margin over the frozen baseline in points."""
        values = [number(audit["checks"]["depth"]["value"]) for audit in self.group.audits]
        return _percent(values, signed=True)

    @property
    def is_baseline(self) -> bool:
        """Return whether no block was trained, so that the run is there for comparison only."""
        audit = self.group.audits[0]
        spec = audit.get("spec")
        if spec is None:
            return False
        blocks = len(audit["layers"]) - 1
        return bool(spec["shallow"] or spec["frozen_blocks"] >= blocks or spec["epochs"] == 0)

    @property
    def has_warnings(self) -> bool:
        """Return whether an audit warns that a number may mean something else."""
        return any(audit.get("warnings") for audit in self.group.audits)

    @property
    def evidence(self) -> Document:
        """Return the report of its audits, whose sections the page shows."""
        return report(self.group)

    @property
    def _fires(self) -> dict[str, bool | None]:
        fires: dict[str, bool | None] = dict.fromkeys(CHECKS)
        for letter, name in lettered().items():
            fires[name] = self.judgement.checks[letter].fires
        return fires

    @property
    def _finite(self) -> bool:
        return all(audit["finite"] for audit in self.group.audits)


def _percent(fractions: Sequence[float | None], *, signed: bool = False) -> Number:
    """Return mean and deviation of those fractions that are known, times 100."""
    known = [100 * value for value in fractions if value is not None and math.isfinite(value)]
    if not known:
        return Number(None)
    summary = summarise(known)
    counts = {"measured": len(known), "of": len(fractions)}
    return Number(summary.mean, 1, summary.deviation, signed, **counts)


def read_runs(
    paths: Sequence[str | Path], labels: Mapping[str, str] | None = None
) -> list[PageRun]:
    """Read audits in any order; those of one run over its seeds belong together.

    Args:
        paths: JSON files, one for each network.
        labels: how settings and runs are called, by their names.

    Returns:
        The runs, settings in the order of their files, in each the largest margin first.

    Raises:
        AuditError: a file is not an audit, or repeats a seed.
    """
    labels = labels or {}
    files: dict[tuple[str, str, str], list[str | Path]] = defaultdict(list)
    for path in paths:
        files[_key(read_audit(path))].append(path)
    by_setting: dict[str, list[PageRun]] = defaultdict(list)
    for (setting, name, _), group in files.items():
        names = labels.get(setting, setting), labels.get(name, name)
        by_setting[setting].append(PageRun(*names, read_seed_group(group)))
    runs = []
    for found in by_setting.values():
        runs += sorted(found, key=_by_margin)
    return runs


def _key(audit: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return setting, name and specification but for the seed."""
    if "spec" not in audit:
        return audit.get("setting", NO_SETTING), audit.get("run") or audit["method"], ""
    spec = audit["spec"]
    options = {name: spec[name] for name in SHARED if name in spec}
    run = Run(**options, frozen=0 if spec["shallow"] else spec["frozen_blocks"])
    setting = f"{spec['dataset']}, {spec['architecture']}"
    same = json.dumps(spec | {"seed": 0}, sort_keys=True)
    return audit.get("setting", setting), audit.get("run") or str(run), same


def _by_margin(run: PageRun) -> float:
    value = run.margin.value
    return math.inf if value is None else -value
