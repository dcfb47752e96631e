"""Disks of a few megabytes, full or read-only, where this process may mount them."""

import contextlib
import subprocess

import pytest


def mount(*arguments):
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip().splitlines()[-1]}")


@contextlib.contextmanager
def small_disk(folder, size):
    """A disk of `size` bytes, mounted on an empty folder."""
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def read_only(folder):
    """A folder that nobody can write to, not even root."""
    mount("--bind", folder, folder)
    try:
        mount("-o", "remount,ro,bind", folder)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder, free):
    """Take all but `free` bytes of a small disk; returns the file that does."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), open(ballast, "ab", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
    with open(ballast, "r+b") as stream:
        stream.truncate(max(0, ballast.stat().st_size - free))
    return ballast
