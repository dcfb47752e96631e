"""Faults of one process, armed before it begins its work; nothing in the product knows of them."""

import os
import resource
import signal
import sys

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.chmod", "tempfile.mkstemp"}


def inject(die_at=None, largest_file=None):
    """Arm a fault in this process.

    Args:
        die_at: kill -9 just before the n-th change of the file system under the working folder.
        largest_file: the system refuses to let a file grow beyond so many bytes.
    """
    if die_at:
        watch_changes(die_at)
    if largest_file:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))


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
