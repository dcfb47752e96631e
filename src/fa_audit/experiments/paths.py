"""Name the path of every file of results, relative to the folder in which the workflow runs.
Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import NamedTuple

from fa_audit.core.errors import AuditError
from fa_audit.documents.writers import TABLES

# NAME.origin.json beside each figure and table records the code and inputs that made it.
ORIGIN = ".origin.json"
# The lock that a workflow holds while it works in the folder.
LOCK = "results/.lock"
ENDINGS = {"figures": ("pdf", "png", "svg"), "tables": tuple(TABLES)}
# Files of a setting that figures and tables read.
EVIDENCE = ("audits.json", "trajectories.csv")
# Tables with one observation a row, made for every setting and for all settings together.
TIDY = ("runs", "layers", "trajectories", "work")
# The files that a training writes: folder and ending.
NETWORK_FILES = (("checkpoints", "safetensors"), ("checkpoints", "json"), ("trajectories", "csv"))


class RunKey(NamedTuple):
    """One network: a run of a setting with a seed. Sorts and unpacks like a tuple.

    >>> RunKey("demo", "dfa+penalty1e-2", 42).path("audits", "json")
    'results/audits/demo/dfa+penalty1e-2/seed42.json'
    """

    setting: str
    run: str
    seed: int

    def __str__(self) -> str:
        return f"{self.setting}/{self.run}/seed{self.seed}"

    def path(self, folder: str, ending: str) -> str:
        """Return ``results/FOLDER/SETTING/RUN/seedSEED.ENDING``."""
        return f"results/{folder}/{self}.{ending}"

    @classmethod
    def of(cls, path: str | PurePath) -> RunKey:
        """Read the key from a path ``.../SETTING/RUN/seedSEED.ENDING``.

        >>> RunKey.of("results/audits/demo/dfa/seed42.json")
        RunKey(setting='demo', run='dfa', seed=42)

        Raises:
            AuditError: the path does not end like this.
        """
        # No leading zeros: seed042 is not the seed of any run.
        pattern = r"([^/]+)/([^/]+)/seed(0|[1-9][0-9]*)(\.[^/.]*)?$"
        found = re.search(pattern, PurePath(path).as_posix())
        if not found:
            raise AuditError(
                f"{path}: expected a path that ends in SETTING/RUN/seedSEED: keep the file where it"
                " was written."
            )
        return cls(found[1], found[2], int(found[3]))


def run_files(folder: str, ending: str, keys: Iterable[RunKey]) -> list[str]:
    """Return ``results/FOLDER/SETTING/RUN/seedSEED.ENDING`` for every key, in their order."""
    return [key.path(folder, ending) for key in keys]


def data_file(dataset: str) -> str:
    """Return the path of a data set's arrays."""
    return f"results/data/{dataset}.safetensors"


def evidence_files(settings: Iterable[str]) -> list[str]:
    """Return the paths of every setting's `EVIDENCE`, which figures and tables read."""
    return [f"results/tidy/{setting}/{name}" for setting in settings for name in EVIDENCE]


def artefact_files(section: str, name: str, folder: str = "results") -> list[str]:
    """Return the paths of a figure or table, one for each format.

    Args:
        section: ``figures`` or ``tables``.
    """
    return [f"{folder}/{section}/{name}.{ending}" for ending in ENDINGS[section]]


def scorecard_files() -> list[str]:
    """Return the paths of the scorecard as a table and as a figure, in every format."""
    return [
        "results/scorecard.csv",
        "results/scorecard.md",
        *artefact_files("figures", "scorecard"),
    ]
