"""Whether results are what the manifest says and, unpacked from an archive, what the archive's own list says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from fa_audit.core.errors import AuditError, printable, shortened
from fa_audit.core.files import read_json, sha256_of

MANIFEST, ARCHIVED = Path("results/MANIFEST.json"), Path("results/ARCHIVE.json")
REMAKE = "Unpack it again, or make it again with snakemake --force {} and the --configfile that it was made with."
UNPACK = f"Unpack it again; if snakemake has made files here since, delete {ARCHIVED}, which is about the archive."
CURES = {"artefacts": REMAKE, "inputs": REMAKE, "archived files": UNPACK}
Recorded = Mapping[str, set[tuple[str, str]]]


def recorded_digests(path: str | Path) -> Recorded:
    """What a manifest says of every artefact and of everything that these were made from, or an archive's list of all.

    Returns:
        (path, SHA-256) of the files, by what they are: a key of `CURES`; paths begin with the folder of `path`.

    Raises:
        AuditError: it is no such file, or says nothing.
    """
    if not Path(path).exists():
        raise AuditError(
            f"{path}: no such file; snakemake writes it with figures and tables, make archive with results."
        )
    try:
        recorded = _recorded(read_json(path))
    except (KeyError, TypeError, AttributeError) as error:
        raise AuditError(f"{path}: expected a manifest that snakemake wrote ({error}); unpack it again.") from error
    pairs = set().union(*recorded.values())
    if wrong := [f"{name}: {digest}" for name, digest in pairs if not _plausible(name, digest)]:
        raise AuditError(
            f"{path}: found {shortened(min(wrong))}; expected a path in its folder and a SHA-256: unpack it again."
        )
    if not pairs:
        raise AuditError(f"{path}: it records no file, so that nothing can be compared; unpack it again.")
    return recorded


def _recorded(content: Any) -> Recorded:
    if "files" in content:
        return {"archived files": set(content["files"].items())}
    entries = content["artefacts"]
    inputs = {pair for entry in entries.values() for pair in entry["inputs"].items()}
    return {"artefacts": {(name, entry["sha256"]) for name, entry in entries.items()}, "inputs": inputs}


def _plausible(name: str, digest: Any) -> bool:
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts
    return inside and isinstance(digest, str) and bool(re.fullmatch("[0-9a-f]{64}", digest))


def verified(paths: Sequence[Path]) -> tuple[list[str], str]:
    """One line for every file that is not as recorded, and how many of each kind were compared.

    Args:
        paths: manifest, archive's list, or both, of one folder.

    Raises:
        AuditError: one of them is none.
    """
    recorded = {kind: pairs for path in paths for kind, pairs in recorded_digests(path).items()}
    counted = ", ".join(f"{len(pairs)} {kind}" for kind, pairs in recorded.items())
    return mismatches(recorded, paths[0].absolute().parent.parent), counted


def mismatches(recorded: Recorded, home: Path) -> list[str]:
    """One line for every file that is not as recorded; paths are those from `home`."""
    kinds = {pair: kind for kind in reversed(recorded) for pair in recorded[kind]}
    lines = []
    for (name, expected), kind in sorted(kinds.items()):
        if (found := _found(home / name)) != f"SHA-256 {expected}":
            shown = printable(name) if len(name) < 300 else shortened(name)
            lines.append(f"{shown}: found {found}; expected SHA-256 {expected}. {CURES[kind].format(shown)}")
    return lines


def _found(path: Path) -> str:
    try:
        return f"SHA-256 {sha256_of(path)}" if path.is_file() else "no file"
    except OSError as error:
        return f"a file that cannot be read ({error.strerror})"
