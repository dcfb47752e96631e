"""Record what artefacts were made from (code, specification, inputs), and compare files with their recorded SHA-256."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fa_audit.core.code import own_code
from fa_audit.core.errors import AuditError, printable, shortened
from fa_audit.core.files import read_json, sha256_of
from fa_audit.core.provenance import commit, packages
from fa_audit.experiments.paths import MANIFEST, ORIGIN

SUMS = "results/SHA256SUMS"  # of every file of an archive, for `sha256sum --check` too
LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<name>\S.*)")


@dataclass(frozen=True)
class Origin:
    """Where a figure or a table comes from."""

    commit: str  # `git describe` of the code that made it
    spec: str  # SHA-256 of its entry in the configuration and of its runs' specifications
    inputs: Mapping[str, str]  # SHA-256 of every file that it was made from, by path
    own_code: Mapping[str, str]  # SHA-256 of the user's own code that made it, by path

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self)

    def __str__(self) -> str:
        files = "".join(f"; {path} {digest}" for path, digest in {**self.inputs, **self.own_code}.items())
        return f"commit {self.commit}; spec {self.spec}{files}"


def origin_of(entry: Mapping[str, Any], runs: Iterable[str], inputs: Iterable[str | Path]) -> Origin:
    """Return the origin of an artefact that is made now.

    Args:
        entry: what the configuration says of it.
        runs: digests of the specifications of its runs, in any order.
        inputs: the files that it is made from.
    """
    asked = json.dumps([entry, sorted(set(runs))], sort_keys=True)
    digest = hashlib.sha256(asked.encode()).hexdigest()
    return Origin(commit(), digest, {str(path): sha256_of(path) for path in inputs}, own_code(entry["kind"]))


def manifest(origins: Iterable[str | Path]) -> dict[str, Any]:
    """Return the versions of Python and packages, and for every artefact its SHA-256 and its origin.

    Args:
        origins: files ``NAME.origin.json``; the artefacts are ``NAME.*`` beside each.
    """
    entries = {}
    for path in sorted(map(Path, origins)):
        name = path.name.removesuffix(ORIGIN)
        origin = read_json(path)
        for artefact in sorted(set(path.parent.glob(f"{name}.*")) - {path}):
            entries[str(artefact)] = {"sha256": sha256_of(artefact)} | origin
    return {"versions": {"python": platform.python_version()} | packages(), "artefacts": entries}


# --- verification --------------------------------------------------------------------------------------------------


def recorded() -> dict[str, str]:
    """Return the SHA-256 of every file that is recorded here, by path.

    Raises:
        AuditError: nothing is recorded, or a list is damaged.
    """
    lines = [*_manifest_lines(), *_sums_lines()]
    if not lines:
        raise AuditError(f"found neither {MANIFEST} nor {SUMS}; the workflow writes the one, make archive the other.")
    found = {}
    for line in lines:
        match = LINE.fullmatch(line)
        if not match or PurePosixPath(match["name"]).is_absolute() or ".." in PurePosixPath(match["name"]).parts:
            raise AuditError(f"found {shortened(line)}; expected a SHA-256 and a path in this folder. Unpack it again.")
        found[match["name"]] = match["digest"]
    return found


def _manifest_lines() -> Iterator[str]:
    if not Path(MANIFEST).exists():
        return
    try:
        artefacts: Any = read_json(MANIFEST)["artefacts"]
        for name, entry in artefacts.items():
            yield from (f"{digest}  {path}" for path, digest in {**entry["inputs"], name: entry["sha256"]}.items())
    except (KeyError, TypeError, AttributeError) as error:
        raise AuditError(f"{MANIFEST}: expected a manifest that the workflow wrote; unpack it again.") from error


def _sums_lines() -> list[str]:
    return Path(SUMS).read_text(encoding="utf-8", errors="replace").splitlines() if Path(SUMS).exists() else []


def mismatches(digests: dict[str, str]) -> Iterator[str]:
    """Yield one line for every file that is missing or differs from what is recorded of it."""
    for name, expected in sorted(digests.items()):
        path = Path(name)
        found = f"SHA-256 {sha256_of(path)}" if path.is_file() else "no file"
        if found != f"SHA-256 {expected}":
            yield f"{printable(name)}: found {found}; expected SHA-256 {expected}"


def sums(paths: Iterable[Path]) -> str:
    """Return the lines that ``sha256sum`` prints of files."""
    return "".join(f"{sha256_of(path)}  {path}\n" for path in sorted(paths))
