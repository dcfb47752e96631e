"""The audits of one network over its seeds. Imports no torch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

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
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class SeedGroup:
    """Audits of the same specification but for the seed, in the order of their labels."""

    unit: str  # what distinguishes them: seed, or file where no specification was recorded
    labels: tuple[int, ...]  # the seeds in rising order, or the numbers of the files, from 1
    paths: tuple[str, ...]
    audits: tuple[Mapping[str, Any], ...]

    def alike(self, said: Sequence[T]) -> dict[T, tuple[str, list[int]]]:
        """Group the audits by what is said of each: a prefix such as ``seed 1, 2: `` and the
        indices of the audits.

        The prefix is empty where the same is said of all.
        """
        places: dict[T, list[int]] = defaultdict(list)
        for place, text in enumerate(said):
            places[text].append(place)
        named = {
            text: ", ".join(str(self.labels[place]) for place in own)
            for text, own in places.items()
        }
        return {
            text: (f"{self.unit} {named[text]}: " * (len(places) > 1), own)
            for text, own in places.items()
        }


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
