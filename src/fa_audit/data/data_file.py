"""The file of a data set: safetensors with a description and a SHA-256 of everything in it.

Imports no torch, so that files can be checked before a job starts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from fa_audit.core.errors import AuditError
from fa_audit.core.files import FOREIGN

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
KEY = "fa_audit_dataset"  # of the description, in the file's metadata
HINT = "make it again by `fa-audit audit CHECKPOINT --data NAME`: trainings on it stay valid"


def read_data_file(path: str | Path, framework: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the description and the arrays of a data set and compare them with their SHA-256.

    Args:
        framework: ``pt`` for torch tensors, ``np`` for numpy arrays.

    Raises:
        AuditError: the file is missing, truncated, foreign or altered.
    """
    try:
        with safe_open(path, framework=framework) as stream:
            described = json.loads((stream.metadata() or {})[KEY])
            arrays = {name: stream.get_tensor(name) for name in ARRAYS}
        recorded = described.pop("sha256")
        altered = [
            name for name, found in checksums(described, arrays).items() if found != recorded[name]
        ]
    except FileNotFoundError:
        raise AuditError(f"{path}: no such file; {HINT}.") from None
    except (OSError, SafetensorError, *FOREIGN) as error:
        raise AuditError(
            f"{path}: not a data set written by fa-audit ({error}). If it should be one, delete "
            f"it and {HINT}."
        ) from error
    if altered:
        raise AuditError(
            f"{path}: {', '.join(altered)} altered (SHA-256 differs). Delete it and {HINT}."
        )
    return described, arrays


def joined(checksums: Mapping[str, str]) -> str:
    """Join the checksums of the description and of every array to one digest."""
    return hashlib.sha256("".join(checksums.values()).encode()).hexdigest()


def checksums(described: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of the description and of every array's bytes."""
    text = json.dumps(described, sort_keys=True)
    return {"description": hashlib.sha256(text.encode()).hexdigest()} | {
        name: checksum(array) for name, array in arrays.items()
    }


def checksum(array: Any) -> str:
    """Return the SHA-256 of the bytes of a numpy array or of a torch tensor on the CPU."""
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()


def check_data_files(paths: Iterable[str | Path]) -> None:
    """Read every data set that is there.

    Raises:
        AuditError: one is truncated, foreign or altered.
    """
    for path in sorted(map(Path, paths)):
        if path.exists():
            read_data_file(path, "np")
