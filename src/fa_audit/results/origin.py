"""Record what an artefact was made from: commit of the code, specification, SHA-256 of its inputs."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fa_audit.core.files import read_json, sha256_of
from fa_audit.core.provenance import commit, packages
from fa_audit.experiments.paths import ORIGIN


@dataclass(frozen=True)
class Origin:
    """Where a figure or a table comes from.

    Attributes:
        commit: `git describe` of the code that made it.
        spec: SHA-256 of what was asked for: its entry in the configuration, and the specifications of its runs.
        inputs: SHA-256 of every file that it was made from, by path.
    """

    commit: str
    spec: str
    inputs: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self)

    def __str__(self) -> str:
        inputs = "".join(f"; {path} {digest}" for path, digest in self.inputs.items())
        return f"commit {self.commit}; spec {self.spec}{inputs}"


def origin_of(entry: Mapping[str, Any], runs: Iterable[str], inputs: Iterable[str | Path]) -> Origin:
    """Return the origin of an artefact that is made now.

    Args:
        entry: what the configuration says of it.
        runs: digests of the specifications of its runs, in any order.
        inputs: the files that it is made from.
    """
    asked = json.dumps([entry, sorted(set(runs))], sort_keys=True)
    digest = hashlib.sha256(asked.encode()).hexdigest()
    return Origin(commit(), digest, {str(path): sha256_of(path) for path in inputs})


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
