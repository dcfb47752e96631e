"""What stands beside a checkpoint, read back: every entry of its type, and of the same run as the files. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fa_audit.core.errors import AuditError, shortened
from fa_audit.core.files import FOREIGN, read_json, sha256_of
from fa_audit.experiments.spec import RunSpec, parse_run


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _is_number(value: object, largest: float) -> bool:
    return type(value) in (int, float) and 0 <= value <= largest


REMAKE = "Delete it and run snakemake again."
TEXTS = ("run", "digest", "fingerprint", "checkpoint_sha256", "trajectory_sha256")
ENTRIES: dict[str, Callable[[Any], bool]] = {  # files of older versions lack some
    **dict.fromkeys(TEXTS, _is_text),
    "spec": lambda value: isinstance(value, dict),
    "accuracy": lambda value: _is_number(value, 1),
    "seconds": lambda value: _is_number(value, 1e12),
    "stopped_after": lambda value: value is None or (_is_number(value, 1e6) and type(value) is int),
    "provenance": lambda value: isinstance(value, dict) and all(_is_text(value.get(k)) for k in ("device", "commit")),
}


def read_sidecar(path: str | Path, *needed: str) -> dict[str, Any]:
    """The JSON beside a checkpoint, or a baseline that was made from it.

    Args:
        needed: entries that must be there, beside the specification and the accuracy.

    Raises:
        AuditError: an entry is missing or odd.
    """
    facts = read_json(path, "the JSON beside a checkpoint, or a baseline's")
    if not isinstance(facts, dict):
        raise _no_sidecar(path, f"found {shortened(facts)}")
    if missing := [name for name in ("spec", "accuracy", *needed) if name not in facts]:
        raise _no_sidecar(path, f"missing {', '.join(missing)}")
    for name in ENTRIES.keys() & facts.keys():
        if not ENTRIES[name](facts[name]):
            raise _no_sidecar(path, f"{name}: found {shortened(facts[name])}")
    try:
        RunSpec.from_dict(facts["spec"])
    except FOREIGN as error:
        raise _no_sidecar(path, f"spec: {error}".rstrip(".")) from error
    return facts


def _no_sidecar(path: str | Path, found: str) -> AuditError:
    return AuditError(
        f"{path}: {found}; expected what a training writes beside its checkpoint. If it should be"
        " that, delete it and run the training again."
    )


def check_run(facts: Mapping[str, Any], sidecar: str | Path, **files: str | Path) -> None:
    """Compare the files of a run with what its sidecar says of them.

    Args:
        facts: what `sidecar` holds.
        files: ``checkpoint``, ``trajectory`` or both.

    Raises:
        AuditError: a file was altered or belongs to another training than the sidecar.
    """
    for kind, path in files.items():
        recorded = facts.get(f"{kind}_sha256")  # absent in files of older versions
        if recorded and recorded != sha256_of(path):
            raise AuditError(
                f"{path}: altered, or of another training than {sidecar} (SHA-256 differs). Delete both and run the"
                " training again."
            )


def check_spec(found: RunSpec, expected: RunSpec, path: str | Path, cure: str = REMAKE) -> None:
    """Compare the run that a file is of with the one that it should be of.

    Args:
        cure: what to do where they differ.

    Raises:
        AuditError: they differ, as when a killed workflow's training ends after an edit of the configuration.
    """
    theirs, ours = found.to_dict(), expected.to_dict()
    differing = [name for name in ours if theirs[name] != ours[name]]
    if differing:
        told = "; ".join(f"{name} {shortened(theirs[name])}, not {shortened(ours[name])}" for name in differing)
        raise AuditError(f"{path}: of another run than expected: {told}. {cure}")


def check_baseline(facts: Mapping[str, Any], name: str, audited: RunSpec, path: str | Path, cure: str = REMAKE) -> None:
    """Compare a baseline with what the audited network is to be compared with.

    Args:
        facts: what `path` holds.
        name: of the baseline's run, such as ``dfa+frozen``.
        audited: the network's specification.

    Raises:
        AuditError: it is another run, or of another cell; its accuracy then says nothing about the audited network.
    """
    expected = f"Expected {name} in the cell of the audited network. {cure}"
    check_spec(RunSpec.from_dict(facts["spec"]), audited.of_cell(parse_run(name)), path, expected)
