"""Whether figures, tables and the files that they were made from are what the manifest says."""

from __future__ import annotations

import json
from pathlib import Path

from fa_audit.errors import AuditError
from fa_audit.origin import content_digest


def recorded_digests(path: str | Path) -> dict[str, dict[str, str]]:
    """What a manifest says: the SHA-256 of every artefact, and of everything that these were made from, by path.

    Returns:
        ``{"artefacts": {path: digest}, "inputs": {path: digest}}``; paths begin with the manifest's folder.

    Raises:
        AuditError: it is no manifest.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))["artefacts"]
        artefacts = {str(name): str(entry["sha256"]) for name, entry in entries.items()}
        inputs = {str(name): str(digest) for entry in entries.values() for name, digest in entry["inputs"].items()}
    except FileNotFoundError:
        raise AuditError(f"{path}: no such file; snakemake writes it with the figures and tables.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AuditError(f"{path}: expected a manifest that snakemake wrote ({error}); unpack it again.") from error
    return {"artefacts": artefacts, "inputs": inputs}


def mismatches(path: str | Path) -> list[str]:
    """One line for every file that is not what the manifest `path` says; the files lie around the manifest.

    Raises:
        AuditError: it is no manifest.
    """
    recorded = recorded_digests(path)
    home = Path(path).absolute().parent.parent
    lines = []
    for name, expected in sorted((recorded["artefacts"] | recorded["inputs"]).items()):
        found = f"SHA-256 {content_digest(home / name)}" if (home / name).is_file() else "no file"
        if found != f"SHA-256 {expected}":
            lines.append(
                f"{name}: found {found}; expected SHA-256 {expected}. Unpack it again, or make it again with"
                f" snakemake --force {name}."
            )
    return lines
