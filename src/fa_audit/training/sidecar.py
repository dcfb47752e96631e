"""Read a checkpoint's sidecar, the JSON beside it, and check that a run's files belong together.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fa_audit.core.errors import AuditError, shortened
from fa_audit.core.files import check_signature, read_json, sha256_of
from fa_audit.core.validation import Tolerant, validated
from fa_audit.experiments.spec import DEPARTURES, RunSpec, SpecFile, Text, parse_run

HINT = "Delete it and make it again."
Fraction = Annotated[float, Field(ge=0, le=1)]


class Provenance(Tolerant):
    """the machine and libraries of a training"""

    device: Text
    commit: Text


class Baseline(Tolerant):
    """a baseline's JSON, or a checkpoint's sidecar"""

    spec: SpecFile
    digest: Text
    accuracy: Fraction
    checkpoint_sha256: Text
    run: Text = ""


class Sidecar(Baseline):
    """a checkpoint's sidecar"""

    fingerprint: Text
    seconds: float = Field(ge=0, le=1e12)
    stopped_after: int | None = Field(ge=0, le=10**6)
    trajectory_sha256: Text
    validation_accuracy: Fraction | None = None
    provenance: Provenance


def read_sidecar(path: str | Path, model: type[Baseline] = Sidecar) -> dict[str, Any]:
    """Read the JSON beside a checkpoint.

    Raises:
        AuditError: an entry is missing, of the wrong type or out of range, or the file was altered.
    """
    facts = read_json(path, "the JSON of a checkpoint or of a baseline")
    try:
        validated(model, facts, str(path))
    except AuditError as error:
        raise AuditError(
            f"{error} Give another file; if a training made this one, delete it and run the"
            " training again."
        ) from None
    check_signature(facts, path)
    return facts


def read_training(
    sidecar: str | Path, spec: RunSpec, hint: str = HINT, **files: str | Path | None
) -> dict[str, Any]:
    """Read the sidecar of the run `spec`, and check that the run's files belong to it.

    Args:
        hint: as in `check_spec`.
        files: as in `check_run`.

    Raises:
        AuditError: as `read_sidecar`, `check_spec` and `check_run`.
    """
    facts = read_sidecar(sidecar)
    check_spec(RunSpec.from_dict(facts["spec"]), spec, sidecar, hint)
    check_run(facts, sidecar, **files)
    return facts


def check_run(facts: Mapping[str, Any], sidecar: str | Path, **files: str | Path | None) -> None:
    """Compare the files of a run with their SHA-256 in its sidecar.

    Args:
        facts: what `sidecar` holds.
        files: ``checkpoint``, ``trajectory`` or both; None for a file that is not known.

    Raises:
        AuditError: a file was altered or belongs to another training than the sidecar.
    """
    for kind, path in files.items():
        if path and facts[f"{kind}_sha256"] != sha256_of(path):
            raise AuditError(
                f"{path}: altered, or of another training than {sidecar} (SHA-256 differs)."
                " Delete both and run the training again, or put the files of one training together."
            )


def check_spec(found: RunSpec, expected: RunSpec, path: str | Path, hint: str = HINT) -> None:
    """Check that a file belongs to the expected run; `hint` tells the user what to do otherwise.

    Raises:
        AuditError: the file belongs to another run, for instance because the configuration was
            edited during the training.
    """
    # A file leaves out options that have their defaults.
    theirs, ours = DEPARTURES | found.to_dict(), DEPARTURES | expected.to_dict()
    differing = []
    for name, value in ours.items():
        if theirs[name] != value:
            differing.append(f"{name} {shortened(theirs[name])}, not {shortened(value)}")
    if differing:
        problems = "; ".join(differing)
        raise AuditError(f"{path}: of another run than expected: {problems}. {hint}")


def read_baseline(
    path: str | Path, name: str, audited: RunSpec, hint: str = HINT
) -> dict[str, Any]:
    """Read a baseline's JSON, or its checkpoint's sidecar, and check that it is the expected
    baseline of an audited network.

    Args:
        path: the file. If its run names a learning rate, its rate and normalisation may differ from
            the audited network's.
        name: the expected run, such as ``dfa+frozen``.
        audited: the network's specification.

    Raises:
        AuditError: as `read_sidecar`; or the file is of another run, or of another network, data
            set, budget or seed; its accuracy then says nothing about the audited network.
    """
    facts = read_sidecar(path, Baseline)
    wanted, found = audited.with_run(parse_run(name)), RunSpec.from_dict(facts["spec"])
    run = parse_run(facts.get("run", name))
    # A baseline whose run names a learning rate may differ in rate and normalisation.
    if run.lr and run.untuned == parse_run(name).untuned:
        wanted = replace(wanted, lr=run.lr, normalise=found.normalise and not run.unnormalised)
    expected = f"Expected {name} with the audited run's network, data, budget and seed. {hint}"
    check_spec(found, wanted, path, expected)
    return facts
