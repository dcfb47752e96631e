"""Write files atomically, compute their digests, and lock files that one process may use at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import math
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fa_audit.core.errors import AuditError

# Raised by parsing, or by using, JSON that does not have the expected structure.
FOREIGN = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
SIGNATURE = "content"  # the entry of a record that has the SHA-256 of the others
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
log = logging.getLogger(__name__)


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Fill a temporary file beside `path` with `write`, then rename it into place.

    The content is flushed to the disk before the rename, so that neither a kill nor a power cut
    leaves half a file under the final name. Of a link, the target is replaced; devices and pipes
    are written to.

    Raises:
        AuditError: the disk is full, read-only or broken; `path` is as it was before.
    """
    path = Path(path)
    if path.is_relative_to("/dev") or (path.exists() and not path.is_file()):
        _write_through(path, write)
        return
    path = Path(os.path.realpath(path))
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        mode = part.stat().st_mode
        write(part)
        part.chmod(mode)  # safetensors makes files that only their owner reads
        _flush(part)
        part.replace(path)
        _flush(path.parent)
    except OSError as error:
        raise not_written(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _write_through(path: Path, write: Callable[[Path], object]) -> None:
    """Fill a temporary file, then copy it to a device or pipe, which cannot be replaced."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder, path.name)
        write(part)
        try:
            path.write_bytes(part.read_bytes())
        except OSError as error:
            raise not_written(path, error) from error


def not_written(path: Path, error: OSError) -> AuditError:
    """Return the error for a file that the system refused to write."""
    folder = next(parent for parent in path.absolute().parents if parent.is_dir())
    why = error.strerror or str(error)
    if isinstance(error, FileExistsError):  # mkdir found a file
        why = os.strerror(errno.ENOTDIR)
    todo = f"Name another place, or make '{folder}' writable"
    if error.errno in FULL:
        why += f"; {shutil.disk_usage(folder).free / 1e6:.1f} MB are free on its disk"
        todo = "Free some space"
    return AuditError(
        f"{path}: not written ({why}). {todo}, and run the same command again: what was written "
        "before is whole and"
        " kept."
    )


def remove_leftovers(*paths: str | Path) -> None:
    """Delete the temporary files that a killed process left beside `paths`; no process may be
    writing them now.
    """
    for path in map(Path, map(os.path.realpath, paths)):
        for part in path.parent.glob(f".{path.name}.*.part*"):
            part.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file atomically."""
    write_atomically(path, lambda part: part.write_bytes(content))


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text atomically; half a surrogate pair, which UTF-8 lacks, is escaped."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: str | Path, value: Any) -> None:
    """Write indented JSON atomically; replace NaN and infinities by flags before.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def check_no_pipe(path: str | Path) -> None:
    """Refuse a named pipe, which nobody may ever write to; a shell's own pipes are allowed.

    Raises:
        AuditError: `path` is a named pipe.
    """
    if Path(path).is_fifo() and not Path(path).is_relative_to("/dev"):
        raise AuditError(f"{path}: found a named pipe; expected a file.")


def check_output(output: str | Path, inputs: Iterable[str | Path]) -> None:
    """Refuse to write over what is read.

    Raises:
        AuditError: `output` is one of the `inputs`.
    """
    if Path(output).resolve() in {Path(path).resolve() for path in inputs}:
        raise AuditError(f"{output}: found as input and output; expected another output.")


def read_json(path: str | Path, expected: str = "JSON") -> Any:
    """Read JSON, as `write_json` writes it; `expected` names in the error what it should hold.

    Raises:
        AuditError: the file cannot be read, or is empty, truncated or no JSON.
    """
    text = ""
    check_no_pipe(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
        return json.loads(text, parse_constant=_refuse)
    except OSError as error:
        raise AuditError(f"{path}: {error.strerror}; expected {expected}.") from error
    except FOREIGN as error:
        empty = isinstance(error, json.JSONDecodeError) and not text.strip()
        found = "an empty file" if empty else f"no JSON ({error})"
        raise AuditError(
            f"{path}: found {found}; expected {expected}. If it should be that, delete it and "
            "make it again."
        ) from error


def as_json(value: Any) -> Any:
    """Return mappings, lists and tuples as JSON types; NaN and infinities become 'nan', 'inf' and
    '-inf'.
    """
    if isinstance(value, Mapping):
        return {key: as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def number(value: float | str | None) -> float | None:
    """Return a number as the JSON of an audit writes it: plain, null, or 'nan', 'inf', '-inf'."""
    return None if value is None else float(value)


def signed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a record of JSON types the SHA-256 of its present entries; others may follow unsigned."""
    keys = sorted(record.keys() - {SIGNATURE})
    return {**record, SIGNATURE: {"entries": keys, "sha256": _signature(record, keys)}}


def check_signature(record: Mapping[str, Any], where: str | Path) -> None:
    """Check that the `signed` entries of a record are unchanged; accept a record without a
    signature.

    Raises:
        AuditError: an entry was changed or removed.
    """
    found = record.get(SIGNATURE)
    try:
        same = found is None or _signature(record, found["entries"]) == found["sha256"]
    except FOREIGN:
        same = False
    if not same:
        raise AuditError(
            f"{where}: its content has another SHA-256 than when it was written: changed or "
            "damaged since. Delete it"
            " and make it again."
        )


def _signature(record: Mapping[str, Any], keys: Iterable[str]) -> str:
    return digest_of({key: record[key] for key in keys}, separators=(",", ":"))


def digest_of(value: object, separators: tuple[str, str] = (", ", ": ")) -> str:
    """Return the SHA-256 of a value of JSON types, in hexadecimal; the order of keys does not
    matter.
    """
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, separators=separators).encode()
    ).hexdigest()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant}, which JSON does not have")


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal, as ``sha256sum`` prints it."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def contents_digest(paths: Iterable[str | Path]) -> str:
    """Return one SHA-256 of the contents of several files, in their order."""
    return hashlib.sha256("".join(map(sha256_of, paths)).encode()).hexdigest()


@contextlib.contextmanager
def exclusive(path: str | Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the advisory lock `path`; the system releases it when the holder dies, however it dies.

    Raises:
        BlockingIOError: another process holds it and `wait` is false; the message names it.
        AuditError: the file system of `path` has no locks, or it cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise not_written(path, error) from error
    with open(path, "a", encoding="utf-8") as stream:
        try:
            _lock(stream.fileno(), path, wait)
        except OSError as error:
            if error.errno in WITHOUT_LOCKS:
                raise AuditError(
                    f"{path}: not locked ({error.strerror}): the file system of "
                    f"'{path.parent.absolute()}' has no"
                    " locks, which keep two processes from the same files. Have them enabled "
                    "(Lustre: mount option"
                    " flock; NFS: lockd), or work in a copy of the project elsewhere."
                ) from error
            raise
        with contextlib.suppress(OSError):  # on a full disk the holder stays unnamed
            os.ftruncate(stream.fileno(), 0)
            os.write(stream.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield


def _lock(handle: int, path: Path, wait: bool) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = path.read_text(encoding="utf-8").strip() or "another process"
        if not wait:
            raise BlockingIOError(error.errno, holder) from error
        log.info("waiting: %s has %s", holder, path)
        fcntl.flock(handle, fcntl.LOCK_EX)
