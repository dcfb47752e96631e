"""Recorded SHA-256: the manifest of all artefacts, and the comparison of every file with what is recorded of it."""

from __future__ import annotations

import csv
import platform
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from fa_audit.core.errors import AuditError, first_line, printable
from fa_audit.core.files import FOREIGN, read_json, sha256_of
from fa_audit.core.origin import packages
from fa_audit.core.progress import following
from fa_audit.data.data_file import data_digest
from fa_audit.experiments.paths import MANIFEST, ORIGIN, RunKey, data_file

SUMS = "results/SHA256SUMS"  # of every file of an archive, for `sha256sum --check` too
Record = tuple[str, str, str]  # a file, what was digested (one of `DIGESTS`) and the digest
OF_TRAINING = {"checkpoint": ("checkpoints", "safetensors"), "trajectory": ("trajectories", "csv")}
WHOLE, ARRAYS = "SHA-256", "SHA-256 of its arrays"
DIGESTS = {WHOLE: sha256_of, ARRAYS: data_digest}
LINE = r"([0-9a-f]{64})  (\S.*)"


def manifest(origins: Iterable[str | Path]) -> dict[str, Any]:
    """Return the versions of Python and packages, and for every artefact its SHA-256 and its origin.

    Args:
        origins: files ``NAME.origin.json``; the artefacts are ``NAME.*`` beside each, and these files themselves.
    """
    entries = {}
    for path in sorted(map(Path, origins)):
        name = path.name.removesuffix(ORIGIN)
        origin = read_json(path)
        for artefact in sorted(path.parent.glob(f"{name}.*")):
            entries[str(artefact)] = {"sha256": sha256_of(artefact)} | origin
    return {"versions": {"python": platform.python_version()} | packages(), "artefacts": entries}


def recorded() -> list[Record]:
    """Return everything that is recorded here, sorted.

    Raises:
        AuditError: nothing is recorded, or a file with records is damaged.
    """
    found: set[Record] = set()
    for path, read in ((path, read) for pattern, read in RECORDS.items() for path in Path().glob(pattern)):
        try:
            found |= set(read(path))
        except AuditError:
            raise
        except FOREIGN as error:
            raise AuditError(
                f"{path}: damaged ({first_line(error)}). Delete it and make it, or unpack it, again."
            ) from error
    if not found:
        raise AuditError(
            f"found neither {MANIFEST} nor {SUMS} nor runs; the workflow makes these, make archive the list."
        )
    return sorted(found)


def _of_artefacts(path: Path) -> Iterator[Record]:
    for name, entry in read_json(path)["artefacts"].items():
        yield from ((file, WHOLE, digest) for file, digest in {**entry["inputs"], name: entry["sha256"]}.items())


def _of_archive(path: Path) -> Iterator[Record]:
    for line in path.read_text(encoding="utf-8").splitlines():
        digest, name = re.fullmatch(LINE, line).groups()
        yield name, WHOLE, digest


def _of_training(path: Path) -> Iterator[Record]:
    """Yield what a sidecar, a baseline or an audit records of the data and the files of a training."""
    facts, key = read_json(path), RunKey.of(path)
    files = {"data_sha256": (data_file(facts["spec"]["dataset"]), ARRAYS)}
    files |= {f"{kind}_sha256": (key.path(*place), WHOLE) for kind, place in OF_TRAINING.items()}
    yield from ((*file, facts[name]) for name, file in files.items() if facts.get(name))


def _of_audits(path: Path) -> Iterator[Record]:
    """Yield what a tidy table records of the audits that it was made from."""
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        key = RunKey(row["setting"], row["run"], int(row["seed"]))
        yield key.path("audits", "json"), WHOLE, str(row["audit_sha256"])


RECORDS: dict[str, Callable[[Path], Iterator[Record]]] = {
    MANIFEST: _of_artefacts,
    SUMS: _of_archive,
    "results/tidy/*/work.csv": _of_audits,
    **{f"results/{kind}/*/*/seed*.json": _of_training for kind in ("checkpoints", "baselines", "audits")},
}


def mismatches(records: Iterable[Record]) -> Iterator[str]:
    """Yield one line for every file that is missing or differs from what is recorded of it."""
    for name, part, expected in following(records, "file"):
        found = f"{part} {DIGESTS[part](name)}" if Path(name).is_file() else "no file"
        if found != f"{part} {expected}":
            yield f"{printable(name)}: found {found}; expected {part} {expected}"


def sums(paths: Iterable[Path]) -> str:
    """Return the lines that ``sha256sum`` prints of files."""
    return "".join(f"{sha256_of(path)}  {path}\n" for path in following(sorted(paths), "file"))
