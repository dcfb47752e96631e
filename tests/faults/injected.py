"""Faults of one process, armed before it begins its work; nothing in the product knows of them."""

import os
import resource
import signal
import sys

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.chmod", "tempfile.mkstemp"}


def inject(die_at=None, largest_file=None, die_when_larger=None):
    """Arm a fault in this process.

    Args:
        die_at: kill -9 just before the n-th change of the file system under the working folder.
        largest_file: the system refuses to let a file grow beyond so many bytes.
        die_when_larger: the same, but the process ends at once, with so many bytes written.
    """
    if die_at:
        watch_changes(die_at)
    if limit := largest_file or die_when_larger:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if die_when_larger else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def watch_changes(die_at):
    folder, left = os.getcwd(), die_at

    def hook(event, arguments):
        nonlocal left
        if changes(event, arguments) and os.path.abspath(os.fsdecode(arguments[0])).startswith(
            folder
        ):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def changes(event, arguments):
    if event == "open":
        return isinstance(arguments[0], str | bytes) and bool(
            arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
    return event in CHANGES
