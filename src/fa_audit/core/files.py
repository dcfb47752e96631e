"""Write files atomically, read and digest them, and hold locks against other processes."""

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from safetensors import SafetensorError

from fa_audit.core.errors import AuditError, first_line

# Exceptions from parsing JSON, or from using JSON that lacks the expected structure.
FOREIGN = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
# The key under which a record stores the SHA-256 of its other entries.
_SIGNATURE = "content"
log = logging.getLogger(__name__)

# --- writing --------------------------------------------------------------------------------------


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file atomically: fill a temporary file beside `path`, then rename it into place.

    The content is flushed to the disk before the rename, so that neither a kill nor a power cut
    leaves half a file under the final name. If `path` is a link, its target is replaced. Pipes,
    and everything in /dev, are written to directly.

    Raises:
        AuditError: the disk is full, read-only or broken; `path` is as it was before.
    """
    path = Path(path)
    try:
        if not path.is_relative_to("/dev") and (path.is_file() or not path.exists()):
            _replace(Path(os.path.realpath(path)), content)
        else:
            path.write_bytes(content)
    except OSError as error:
        raise not_written(path, error) from error


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    # Flush the folder, too: a power cut could lose the new name.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def not_written(path: Path, error: OSError) -> AuditError:
    """Return the error for a file that the system refused to write."""
    folder = next(filter(os.path.isdir, path.absolute().parents))
    why = error.strerror or str(error)
    todo = f"Name another place, or make '{folder}' writable"
    if isinstance(error, FileExistsError):  # mkdir found a file
        why = os.strerror(errno.ENOTDIR)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        why += f"; {shutil.disk_usage(folder).free / 1e6:.1f} MB are free on its disk"
        todo = "Free some space"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        todo = "Raise the limit of open files (`ulimit -n`)"
    return AuditError(
        f"{path}: not written ({why}). {todo}, and run the same command again: files written"
        " before are complete and kept."
    )


def remove_leftovers(*paths: str | Path) -> None:
    """Delete the temporary files that a killed process left beside `paths`. Call this only while no
    process writes `paths`.
    """
    for path in map(Path, map(os.path.realpath, paths)):
        for part in path.parent.glob(f".{path.name}.*.part*"):
            part.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text atomically; escape lone surrogates, which UTF-8 cannot encode."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: str | Path, value: Any) -> None:
    """Write indented JSON atomically. Pass values with NaN or infinities through `as_json` first.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def check_output(output: str | Path, inputs: Iterable[str | Path]) -> None:
    """Refuse an output that would overwrite an input.

    Raises:
        AuditError: `output` is one of the `inputs`.
    """
    if Path(output).resolve() in {Path(path).resolve() for path in inputs}:
        raise AuditError(f"{output}: found as input and output; expected another output.")


# --- reading --------------------------------------------------------------------------------------


def read_json(path: str | Path, expected: str = "JSON") -> Any:
    """Read a JSON file; `expected` tells in error messages what the file should hold.

    Raises:
        AuditError: the file cannot be read, is empty or truncated, or is not JSON.
    """
    content = _read(path, f"expected {expected}")
    try:
        value = json.loads(content.decode(), parse_constant=_refuse)
        # An escape can stand for a lone surrogate, which cannot be written as UTF-8.
        if rb"\ud" in content.lower():
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except FOREIGN as error:
        found = f"no JSON ({error})" if content.strip() else "an empty file"
        raise AuditError(
            f"{path}: found {found}; expected {expected}. Give another file; if fa-audit made this"
            " one, delete it and make it again."
        ) from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant}, which JSON does not have")


def read_tensors(
    path: str | Path,
    load: Callable[[bytes], dict[str, Any]],
    key: str,
    digest: Callable[[dict[str, Any], dict[str, Any]], object],
    hint: str,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the description and the tensors of a safetensors file, and check them against the
    SHA-256 that the description holds.

    Args:
        load: ``safetensors.torch.load`` or ``safetensors.numpy.load``.
        key: entry of the file's metadata that holds the description, as JSON.
        digest: computes the description's entry ``sha256`` from its other entries and the tensors.
        hint: says what to do about a damaged file.

    Raises:
        AuditError: the file cannot be read, or is truncated, foreign or altered.
    """
    # If too many files are open, safe_open would say that this file is missing.
    content = _read(path, hint)
    try:
        length = int.from_bytes(content[:8], "little")
        described = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][key])
        tensors = load(content)
        recorded = described.pop("sha256")
        same = recorded == digest(described, tensors)
    except (MemoryError, SafetensorError, *FOREIGN) as error:
        raise AuditError(
            f"{path}: truncated, or not a safetensors file written by fa-audit"
            f" ({first_line(error)}); {hint}."
        ) from error
    if not same:
        raise AuditError(f"{path}: altered (SHA-256 differs); {hint}.")
    return described, tensors


def _read(path: str | Path, hint: str) -> bytes:
    """Return the bytes of a file.

    Raises:
        AuditError: it cannot be read, or is a named pipe.
    """
    file = Path(path)
    try:
        # A named pipe could block the reader forever; the pipes of a shell are in /dev.
        if file.is_fifo() and not file.is_relative_to("/dev"):
            raise AuditError(f"{path}: found a named pipe; expected a file.")
        return file.read_bytes()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            hint = "raise the limit of open files (`ulimit -n`), or close other programs"
        raise AuditError(f"{path}: {error.strerror}; {hint}.") from error


# --- digests --------------------------------------------------------------------------------------


def as_json(value: Any) -> Any:
    """Convert mappings, lists and tuples to JSON types; NaN and infinities become the texts 'nan',
    'inf' and '-inf'.
    """
    if isinstance(value, Mapping):
        return {key: as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def signed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the SHA-256 of its entries; entries added later are unsigned."""
    keys = sorted(record.keys() - {_SIGNATURE})
    return {**record, _SIGNATURE: {"entries": keys, "sha256": _signature(record, keys)}}


def check_signature(record: Mapping[str, Any], where: str | Path) -> None:
    """Check that the `signed` entries of a record are unchanged; accept a record without a
    signature.

    Raises:
        AuditError: an entry was changed or removed.
    """
    try:
        found = record.get(_SIGNATURE)
        same = found is None or _signature(record, found["entries"]) == found["sha256"]
    except FOREIGN:
        same = False
    if not same:
        raise AuditError(
            f"{where}: its content has another SHA-256 than when it was written: changed or"
            " damaged since. Put the original back, or delete it and make it again."
        )


def _signature(record: Mapping[str, Any], keys: Iterable[str]) -> str:
    return digest_of({key: record[key] for key in keys}, separators=(",", ":"))


def digest_of(value: object, separators: tuple[str, str] = (", ", ": ")) -> str:
    """Return the SHA-256 of a value of JSON types, in hexadecimal; the order of keys does not
    matter.
    """
    text = json.dumps(value, sort_keys=True, separators=separators)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal, as ``sha256sum`` prints it."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- locks ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def exclusive(path: str | Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the advisory lock `path`; the system releases it when the holder dies, however it dies.

    Raises:
        BlockingIOError: another process holds the lock and `wait` is false; the message names the
            process.
        AuditError: `path` cannot be written, or its file system has no locks.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = open(path, "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise not_written(path, error) from error
    with stream:
        try:
            _lock(stream, wait)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
                raise
            raise AuditError(
                f"{path}: not locked ({error.strerror}): the file system of"
                f" '{path.parent.absolute()}' has no locks, so two processes could write the same"
                " files. Have locks enabled (Lustre: mount option flock; NFS: lockd), or work in a"
                " copy of the project elsewhere."
            ) from error
        with contextlib.suppress(OSError):  # on a full disk the holder stays unnamed
            os.ftruncate(stream.fileno(), 0)
            os.write(stream.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield


def _lock(stream: TextIO, wait: bool) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        stream.seek(0)
        holder = stream.read().strip() or "another process"
        if not wait:
            raise BlockingIOError(error.errno, holder) from error
        log.info("waiting: %s has %s", holder, stream.name)
        fcntl.flock(stream, fcntl.LOCK_EX)
