"""What would spoil the work and can be seen before any job starts: folders read-only, disks full, files of tomorrow."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from fa_audit.core.errors import AuditError
from fa_audit.core.files import not_written
from fa_audit.data.data_file import read_data_file

WRITTEN = ("results", ".snakemake")
BLOCK = 4096  # bytes: what file systems hand out
DEPENDED_ON = ("data", "checkpoints", "trajectories", "baselines", "audits", "sweeps", "models", "tidy")
KINDS = (*DEPENDED_ON, "figures", "tables", "logs", "benchmarks", "resume")
OF_FILES = (".safetensors", ".json", ".csv")


def check_places() -> None:
    """Look for what stands in the place of a folder, which Snakemake would stumble over while it plans.

    Raises:
        AuditError: there is something, or a folder cannot be read.
    """
    for path in (*WRITTEN, *(f"results/{name}" for name in KINDS)):
        if os.path.islink(path) and not os.path.exists(path):
            raise link_to_nothing(path)
        if os.path.exists(path) and not os.path.isdir(path):
            raise AuditError(f"{path}: found a file; expected a folder. Move it away.")
        if os.path.exists(path) and not os.access(path, os.R_OK | os.X_OK):
            raise AuditError(f"{path}: cannot be read. Make it readable (who owns it?).")


def link_to_nothing(path: str | Path) -> AuditError:
    """What to tell about a link whose target is not there."""
    return AuditError(f"{path}: found a link to {os.readlink(path)}, where nothing is; mount it, or delete the link.")


def check_writable() -> None:
    """Look for folders that jobs, or Snakemake itself, could not write to, and results that are no readable files.

    Raises:
        AuditError: there is one, or its disk is full.
    """
    there = [path if path.exists() else Path(".") for path in map(Path, WRITTEN)]
    linked = [place for name in KINDS if os.path.islink(place := f"results/{name}")]
    walks = [entry for root in ("results", *linked) for entry in os.walk(root)]
    for folder in [*there, *(Path(place) for place, _, _ in walks)]:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise AuditError(
                f"{folder.resolve()}: cannot be written to, so no job was started. Make it writable (is its disk"
                " mounted read-only? who owns it?), or work in a copy of the project."
            )
    for place, folders, files in walks:
        for name in (*folders, *files):
            if name.endswith(OF_FILES) and not name.startswith("."):
                _check_file(os.path.join(place, name))
    for folder in there:
        _probe(folder)


def _check_file(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # a link to nothing, or gone by now
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise AuditError(f"{path}: found a folder, or no ordinary file; expected a file. Move it away.")
        if not os.access(path, os.R_OK):
            raise AuditError(f"{path}: cannot be read. Make it readable (who owns it?), or delete it.")


def _probe(folder: Path) -> float:
    """Write a block to a disk that may be full: Snakemake would go on without its records. Returns its time."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            probe.write(bytes(BLOCK))
            return os.fstat(probe.fileno()).st_mtime
    except OSError as error:
        raise not_written(folder / "probe", error) from error


def check_data(datasets: Iterable[str]) -> None:
    """Read the data sets that are there: a job would refuse a damaged one, but its results would be removed before.

    Raises:
        AuditError: one is truncated, foreign or altered.
    """
    for path in sorted(Path(f"results/data/{name}.safetensors") for name in datasets):
        if path.exists():
            read_data_file(path, "np")


def check_times(code: Path) -> None:
    """Look for files from the future: what is made from them now would look older, and Snakemake would refuse it.

    Args:
        code: the folder of the Snakefile.

    Raises:
        AuditError: there are some.
    """
    folders = [code / "src", code / "workflow_scripts", *(Path("results") / name for name in DEPENDED_ON)]
    now = max(time.time(), _probe(Path(".snakemake")))  # a file server has a clock of its own
    late = [(path, changed) for path, changed in _files(folders) if changed > now]
    if late:
        more = f" and {len(late) - 1} more files" if late[1:] else ""
        raise AuditError(
            f"{late[0][0]}{more}: last changed {time.ctime(late[0][1])}, which is in the future: the clock says"
            f" {time.ctime(now)}. Results made from it would look older than it. Set the clock, or give such files the"
            f" present time: find {' '.join(map(str, folders[:2]))} results -newermt now -exec touch {{}} +"
        )


def _files(folders: Iterable[Path]) -> Iterator[tuple[str, float]]:
    """Every file with the time of its last change; a link to nothing, or a file that is gone by now, is none."""
    for folder in folders:
        for place, _, names in os.walk(folder):
            for path in (os.path.join(place, name) for name in names):
                with contextlib.suppress(OSError):
                    yield path, os.stat(path).st_mtime
