"""Import fa-audit once, then run `fa-audit ...` on demand, each time in a forked process.

Every line of the input is an order in JSON, every line of the output its answer:

    {"start": [arguments], "folder": path, "faults": {name: value}}    ->    process id
    {"wait": process id}                                               ->    [exit status, output]

`prepare` arms faults in the forked process; nothing in the product knows of them. PYTHONPATH says which fa-audit runs.
"""

import json
import os
import resource
import signal
import sys
import traceback
from importlib import import_module

from fa_audit import cli

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.chmod", "tempfile.mkstemp"}
PRELOADED = ("training.run_files", "audit.run_audit", "methods.dfa", "networks.resmlp")


def main():
    for name in PRELOADED:
        import_module(f"fa_audit.{name}")
    pipes = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            answer, pipe = start(order)
            pipes[answer] = pipe
        else:
            answer = wait(order["wait"], pipes.pop(order["wait"]))
        print(json.dumps(answer), flush=True)


def start(order):
    reading, writing = os.pipe()
    if process := os.fork():
        os.close(writing)
        return process, reading
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    os.chdir(order["folder"])
    os._exit(run(order["start"], order["faults"]))


def run(arguments, faults):
    """Return the exit status of the command line."""
    try:
        prepare(**faults)
        return cli.main(arguments)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def wait(process, pipe):
    output = b"".join(iter(lambda: os.read(pipe, 65536), b""))
    os.close(pipe)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), output.decode()


def prepare(die_at=None, largest_file=None, die_when_larger=None):
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
        if changes(event, arguments) and os.path.abspath(os.fsdecode(arguments[0])).startswith(folder):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def changes(event, arguments):
    if event == "open":
        return isinstance(arguments[0], str | bytes) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
    return event in CHANGES


if __name__ == "__main__":
    main()
