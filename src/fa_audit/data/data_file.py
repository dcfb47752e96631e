"""The file of a data set: safetensors with a description and a SHA-256 of everything in it.

Imports no torch, so that the workflow can look at the files before it starts a job.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from fa_audit.core.errors import AuditError
from fa_audit.core.files import FOREIGN

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
KEY = "fa_audit_dataset"  # of the description, in the file's metadata


def read_data_file(path: str | Path, framework: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The description and the arrays of a data set, compared with their SHA-256.

    Args:
        framework: ``pt`` for arrays of torch, ``np`` for those of numpy.

    Raises:
        AuditError: the file is missing, truncated, foreign or altered.
    """
    try:
        with safe_open(path, framework=framework) as stream:
            described = json.loads((stream.metadata() or {})[KEY])
            arrays = {name: stream.get_tensor(name) for name in ARRAYS}
        recorded = described.pop("sha256")
        altered = [name for name, found in checksums(described, arrays).items() if found != recorded[name]]
    except FileNotFoundError:
        raise AuditError(f"{path}: no such file; {cure(path)}.") from None
    except (OSError, SafetensorError, *FOREIGN) as error:
        raise AuditError(
            f"{path}: not a data set written by fa-audit ({error}). If it should be one, delete it and {cure(path)}."
        ) from error
    if altered:
        raise AuditError(f"{path}: {', '.join(altered)} altered (SHA-256 differs). Delete it and {cure(path)}.")
    return described, arrays


def cure(path: str | Path) -> str:
    """What to do without a data set's file."""
    return f"make it alone, so that what was trained on it stays as it is: snakemake {path} (with your --configfile)"


def checksums(described: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the description and of every array's bytes."""
    text = json.dumps(described, sort_keys=True)
    return {"description": hashlib.sha256(text.encode()).hexdigest()} | {
        name: checksum(array) for name, array in arrays.items()
    }


def checksum(array: Any) -> str:
    """SHA-256 of the bytes of an array of numpy, or of torch on the CPU."""
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()
