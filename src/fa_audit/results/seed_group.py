"""Read and check the audits of one network over its seeds. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.core.errors import AuditError, listed, printable, shortened
from fa_audit.experiments.spec import RunSpec
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.judge import Judgement

# Keys of an external model's entry that may differ between its seeds.
_OF_THE_WEIGHTS = ("seed", "weights", "accuracy", "frozen_accuracy", "bp_frozen_accuracy")
ABSENT = "absent"


def read_seeds(paths: Sequence[str | Path]) -> Judgement:
    """Read the audits of one network over its seeds, and judge them.

    Raises:
        AuditError: a file is not an audit, or differs from the first in more than the seed, or
            repeats a seed.
    """
    return group_of(list(map(read_audit, paths)))


def read_audit(path: str | Path) -> Audit:
    """Read an audit and check its specification; errors: see `Audit.read`, `check_spec`."""
    audit = Audit.read(path)
    check_spec(audit, path)
    return audit


def check_spec(audit: Audit, where: str | Path) -> None:
    """Check that the specification of an audit, if it has one, is complete.

    Raises:
        AuditError: the specification is not complete.
    """
    if audit.spec is None:
        return
    try:
        RunSpec.from_dict(audit.spec)
    except AuditError as error:
        problem = str(error).splitlines()[0]
        raise AuditError(f"{where}: spec: {problem}") from None


def group_of(audits: Sequence[Audit]) -> Judgement:
    """Check that audits are seeds of one network, and judge them; errors: see `read_seeds`."""
    _check_different(audits)
    first = audits[0]
    shared = _identity(first)
    for audit in audits[1:]:
        own = _identity(audit)
        found = []
        for key in shared | own:
            one, other = own.get(key, ABSENT), shared.get(key, ABSENT)
            if one != other:
                found.append(printable(f"{key} ({shortened(one)}, not {shortened(other)})"))
        if found:
            raise AuditError(
                f"{audit.path}: another run than {first.path}; it differs in "
                f"{listed(found, 3)}."
                " Expected audits that differ only in the seed. Make one report for each run, and audit"
                " different networks under different names (method_name)."
            )
    if first.unit == "file":
        return Judgement(audits, "file")
    ordered = sorted(audits, key=lambda audit: audit.label or 0)
    for one, other in pairwise(ordered):
        if one.label == other.label:
            raise AuditError(
                f"{other.path}: seed {one.label} also in {one.path};"
                " expected one file for each seed."
            )
    return Judgement(ordered)


def _check_different(audits: Sequence[Audit]) -> None:
    """Check that no audit was given twice."""
    measured: dict[str, Audit] = {}
    for audit in audits:
        # Leave out dates and machines, which are in `about`. Use json, since pydantic's own JSON
        # refuses half a surrogate pair.
        content = json.dumps(audit.model_dump(mode="json", exclude={"about"}))
        first = measured.setdefault(content, audit)
        # Networks whose numbers are not finite may have equal audits.
        if first is not audit and (audit.finite or first.path == audit.path):
            raise AuditError(
                f"{audit.path}: the same audit as {first.path}; expected one file for each network."
            )


def _identity(audit: Audit) -> dict[str, Any]:
    """Return the facts that all audits of a group must share, by dotted names."""
    shared: dict[str, Any] = {"method": audit.method}
    if audit.spec is not None:
        shared = {"spec": audit.spec | {"seed": "any"}}
    else:
        for key in ("model", "share", "states", "reads", "loss"):
            shared[key] = audit.about.get(key, ABSENT)
        # Not for runs: one that a monitor stopped names its last epoch in place of a baseline.
        shared["frozen baseline"] = audit.baselines.own_name
    entry = {key: value for key, value in audit.entry.items() if key not in _OF_THE_WEIGHTS}
    shared |= {
        "entry": entry,
        "thresholds": audit.thresholds.limits,
        "state of C": audit.stability.layer,
        "samples": audit.samples,
        "batches": audit.batches,
        "number of states": len(audit.layers),
        "number of blocks with credits": len(audit.credit),
    }
    return dict(pd.json_normalize(shared).astype(object).iloc[0])
