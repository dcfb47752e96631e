"""Create .venv in the repository's root with fa-audit and the pinned packages; return at once when that is done.

    python3 tools/bootstrap.py

Standard library only, and the syntax of Python 3.6: an old Python must get as far as the line that says it is too old.
The folder .venv belongs to this script. It is emptied and filled again when the repository was moved, Python changed,
pip broke or an installation did not come to its end; after a change of the pins alone it is updated.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
NEEDED = (3, 11)
FREE_BYTES = 8e9
READY, LOG, LOCK = ".venv/.fa-audit-ready", ".venv/install.log", ".venv.lock"
CHOOSE = "choose another Python, for example: make PYTHON=python3.12 demo"
MISLEADING = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")


class Trouble(Exception):
    """What stops the installation, in one line."""


def say(line: str) -> None:
    print("fa-audit: " + line, file=sys.stderr, flush=True)


def dotted(version: tuple) -> str:
    return ".".join(map(str, version))


def check_python(version: tuple) -> None:
    if version < NEEDED:
        raise Trouble(f"found Python {dotted(version)}, needed is {dotted(NEEDED)} or newer; {CHOOSE}")


def check_modules() -> None:
    missing = [name for name in ("venv", "ensurepip") if find_spec(name) is None]
    if missing:
        modules = " and ".join(missing)
        raise Trouble(f"{sys.executable} lacks {modules}; install it (Debian's package is python3-venv) or {CHOOSE}")


def check_disk(root: Path) -> None:
    venv = root / ".venv"
    free = shutil.disk_usage(venv if venv.is_dir() else root).free
    if free < FREE_BYTES and not any(venv.glob("lib/python*/site-packages/torch")):
        raise Trouble(f"{free / 1e9:.1f} GB of disk are free in {root}, needed are {FREE_BYTES / 1e9:.0f} GB")


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def home(root: Path) -> str:
    """What a virtual environment cannot outlive: its place and its Python."""
    return digest(os.fsencode(str(root)), dotted(sys.version_info[:3]).encode())


def stamp(root: Path) -> str:
    """What .venv holds when it is complete: everything that decides its content, then its home."""
    pins = [(root / name).read_bytes() for name in ("constraints.txt", "pyproject.toml")]
    return digest(*pins, home(root).encode()) + "\n" + home(root) + "\n"


def found_stamp(root: Path) -> str:
    """The stamp of the last complete installation, or nothing."""
    path = root / READY
    return path.read_text() if path.is_file() else ""


def is_ready(root: Path) -> bool:
    return found_stamp(root) == stamp(root) and (root / ".venv/bin/python").exists()


def take_lock(root: Path) -> TextIO:
    """The open lock file. The child processes inherit the lock: an orphaned pip keeps it until it ends."""
    try:
        lock = (root / LOCK).open("a")
    except OSError as error:
        raise Trouble(f"cannot write to the repository {root}: {error.strerror}") from None
    os.set_inheritable(lock.fileno(), True)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another installation into .venv is running; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def run(command: list, root: Path) -> int:
    """The exit status of a command in the repository; what it prints goes to the log."""
    environment = {name: value for name, value in os.environ.items() if name not in MISLEADING}
    environment["PIP_USER"] = "0"
    with (root / LOG).open("a") as log:
        return subprocess.call(
            command,
            cwd=str(root),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            close_fds=False,
        )


def pip(root: Path, *arguments: str) -> list:
    python = str(root / ".venv/bin/python")
    return [python, "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]


def last_words(root: Path) -> str:
    """pip's last error in the log, or else the last line."""
    lines = (root / LOG).read_text(errors="replace").split("\n")
    lines = [line.strip() for line in lines if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error:") and "ResolutionImpossible" not in line]
    return (errors or lines or ["no message"])[-1]


def check_status(status: int, what: str, root: Path) -> None:
    if status:
        raise Trouble(f"{what} failed: {last_words(root)} (log: {root / LOG})")


def empty(folder: Path) -> None:
    """An empty folder, which may be a link to one on another disk."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(str(path))
        else:
            path.unlink()


def create(root: Path, run: Callable) -> None:
    """A new virtual environment, made by the Python outside one that may be active."""
    empty(root / ".venv")
    python = getattr(sys, "_base_executable", None) or sys.executable
    check_status(run([python, "-m", "venv", ".venv"], root), "creating .venv", root)


def can_update(root: Path, run: Callable) -> bool:
    """Whether pip can go on in .venv: installed to the end once, for this place and Python, with a pip that works."""
    return found_stamp(root).split("\n")[1:2] == [home(root)] and run(pip(root, "--version"), root) == 0


def install(root: Path, run: Callable) -> None:
    check_modules()
    check_disk(root)
    content, update = stamp(root), can_update(root, run)
    verb = "updating" if update else "installing"
    say(f"{verb} the pinned packages in .venv: several minutes, about 6 GB (log: {root / LOG})")
    for name in (READY, LOG):
        if (root / name).exists():
            (root / name).unlink()
    if not update:
        create(root, run)
    check_status(run(pip(root, "install", "-c", "constraints.txt", "-e", ".[dev]"), root), "pip", root)
    (root / READY).write_text(content)


def bootstrap(root: Path, run: Callable) -> None:
    check_python(tuple(sys.version_info[:3]))
    if not is_ready(root):
        with take_lock(root):
            if not is_ready(root):
                install(root, run)


def main(root: Path = ROOT, run: Callable = run) -> int:
    try:
        bootstrap(root, run)
    except (Trouble, OSError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; the same command starts the installation again")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
