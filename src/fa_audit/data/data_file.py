"""Read and check data files: safetensors with a description and a SHA-256 of everything in it.

Imports no torch, so that files can be checked before a job starts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load

from fa_audit.core.files import digest_of, read_tensors

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
KEY = "fa_audit_dataset"  # the description's key in the file's metadata
HINT = (
    "name another file, or delete a damaged one: `fa-audit audit CHECKPOINT --data NAME` makes the"
    " same file again, and trainings on it stay valid"
)


def read_data_file(
    path: str | Path, load: Callable[[bytes], dict[str, Any]] = load
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the description and the arrays of a data set and compare them with their SHA-256.

    Args:
        load: reads the arrays as torch tensors or, by default, numpy arrays.

    Raises:
        AuditError: the file is missing, truncated, foreign or altered.
    """
    return read_tensors(path, load, KEY, checksums, HINT)


def checksums(described: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of the description and of every array's bytes."""
    found = {"description": digest_of(described)}
    for name in ARRAYS:
        found[name] = checksum(arrays[name])
    return found


def checksum(array: Any) -> str:
    """Return the SHA-256 of the bytes of a numpy array or of a torch tensor on the CPU."""
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()


def check_data_files(paths: Iterable[str | Path]) -> None:
    """Check every data file that exists.

    Raises:
        AuditError: a file is truncated, foreign or altered.
    """
    for path in sorted(map(Path, paths)):
        if path.exists():
            read_data_file(path)
