"""The audits of one network over its seeds. Imports no torch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.audit.record import read_audit
from fa_audit.core.errors import AuditError, listed, printable, shortened
from fa_audit.core.files import SIGNATURE

OF_THE_WEIGHTS = (
    "seed",
    "weights",
    "accuracy",
    "frozen_accuracy",
    "bp_frozen_accuracy",
)  # keys of a model's entry
SHOWN = 3  # differences in one message
ABSENT = "absent"


@dataclass(frozen=True)
class SeedGroup:
    """Audits of the same specification but for the seed, in the order of their labels."""

    unit: str  # what distinguishes them: seed, or file where no specification was recorded
    labels: tuple[int, ...]  # the seeds in rising order, or the numbers of the files, from 1
    paths: tuple[str, ...]
    audits: tuple[Mapping[str, Any], ...]

    def by_seed(self, say: Callable[[Mapping[str, Any]], str]) -> str:
        """Join what `say` returns for each audit; equal texts once, with the labels where not all
        have them.

        Audits for which `say` returns an empty text are left out.
        """
        labels: dict[str, list[int]] = defaultdict(list)
        for label, audit in zip(self.labels, self.audits):
            labels[say(audit)].append(label)
        return "; ".join(self._prefixed(text, labels[text]) for text in labels if text)

    def warnings(self) -> list[str]:
        """Return every warning of the audits and every remark of their author, with its labels."""
        labels: dict[str, list[int]] = defaultdict(list)
        for label, audit in zip(self.labels, self.audits):
            for text in _warnings(audit):
                labels[text].append(label)
        return [self._prefixed(text, labels[text]) for text in labels]

    def _prefixed(self, text: str, labels: Sequence[int]) -> str:
        if len(labels) == len(self.labels):
            return text
        return f"{self.unit} {', '.join(map(str, labels))}: {text}"


def _warnings(audit: Mapping[str, Any]) -> list[str]:
    remarks = audit.get("notes", "")
    return [*audit.get("warnings", []), *([f"Remark: {remarks}"] if remarks else [])]


def read_seed_group(paths: Sequence[str | Path]) -> SeedGroup:
    """Read the audits of one network over its seeds.

    Raises:
        AuditError: a file is not an audit, or differs from the first in more than the seed, or
            repeats a seed.
    """
    given = list(map(str, paths))
    if repeated := [path for path in given if given.count(path) > 1]:
        raise AuditError(f"{repeated[0]}: given twice; expected different files.")
    audits = {path: read_audit(path) for path in given}
    measured: dict[str, str] = {}
    for path, audit in audits.items():
        found = {**audit, "about": None, SIGNATURE: None}  # without the date of the audit
        content = json.dumps(found, sort_keys=True, default=str)
        if (first := measured.setdefault(content, path)) != path and audit["finite"]:
            raise AuditError(
                f"{path}: the same audit as {first}; expected one file for each network."
            )
    shared = _identity(audits[given[0]])
    for path, audit in audits.items():
        own = _identity(audit)
        pairs = {key: (own.get(key, ABSENT), shared.get(key, ABSENT)) for key in shared | own}
        found = [
            f"{key} ({shortened(one)}, not {shortened(other)})"
            for key, (one, other) in pairs.items()
            if one != other
        ]
        if found:
            raise AuditError(
                f"{path}: another run than {given[0]}; it differs in {listed(list(map(printable, found)), SHOWN)}."
                " Expected the same specification but for the seed: one report for each run."
            )
    return _ordered(audits)


def _ordered(audits: Mapping[str, Mapping[str, Any]]) -> SeedGroup:
    if not all("spec" in audit for audit in audits.values()):
        return SeedGroup(
            "file", tuple(range(1, len(audits) + 1)), tuple(audits), tuple(audits.values())
        )
    by_seed: dict[int, str] = {}
    for path, audit in audits.items():
        if (seed := audit["spec"]["seed"]) in by_seed:
            raise AuditError(
                f"{path}: seed {seed} also in {by_seed[seed]}; expected one file for each seed."
            )
        by_seed[seed] = path
    paths = [path for _, path in sorted(by_seed.items())]
    return SeedGroup(
        "seed", tuple(sorted(by_seed)), tuple(paths), tuple(audits[path] for path in paths)
    )


def _identity(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the audits of one group share, by dotted names."""
    entry = audit.get("entry", {})
    shared = (
        {"spec": audit["spec"] | {"seed": "any"}}
        if "spec" in audit
        else {"method": audit["method"]}
    )
    shared |= {"entry": {key: value for key, value in entry.items() if key not in OF_THE_WEIGHTS}}
    shared |= {
        key: audit.get("about", {}).get(key, ABSENT) for key in ("blocks", "states", "reads")
    }
    shared |= {key: audit[key] for key in ("thresholds", "samples", "batches")}
    shared |= {
        "number of states": len(audit["layers"]),
        "number of blocks with credits": len(audit["credit"]),
    }
    return dict(pd.json_normalize(shared).astype(object).iloc[0])
