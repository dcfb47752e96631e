"""Imports fa-audit once, then runs `fa-audit ...` as often as it is asked to, each time in a process of its own.

Every line of the input is an order in JSON, every line of the output its answer:

    {"start": [arguments], "folder": path, "faults": {name: value}}    ->    process id
    {"wait": process id}                                               ->    {"status": exit status, "said": text}

Faults that only the process itself can meet are prepared in it before it starts, see `prepare`; nothing in the product
knows of them. Standard library and fa-audit only: which fa-audit that is, PYTHONPATH decides.
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
# What a training or an audit imports, torch's compiler included, which an optimiser asks for.
PRELOADED = (
    "fa_audit.training.run_files",
    "fa_audit.audit.run_audit",
    "torch._dynamo",
    "fa_audit.methods.dfa",
    "fa_audit.networks.resmlp",
)


def main():
    for name in PRELOADED:
        import_module(name)
    pipes = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            process, pipes_end = start(order)
            pipes[process] = pipes_end
            answer = process
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
    """The exit status of the command line, as a Python that ran nothing else would give it."""
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
    said = b"".join(iter(lambda: os.read(pipe, 65536), b""))
    os.close(pipe)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return {"status": status, "said": said.decode()}


def prepare(die_at=None, count_to=None, largest_file=None, die_when_larger=None):
    """Arm a fault in this process.

    Args:
        die_at: kill -9 just before its n-th change of the file system under the working folder.
        count_to: a file that holds in the end how many such changes there were.
        largest_file: no file may grow beyond so many bytes; the system refuses to write more.
        die_when_larger: the same, but the process ends at once, with so many bytes written.
    """
    if die_at or count_to:
        watch_changes(die_at, count_to)
    if limit := largest_file or die_when_larger:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if die_when_larger else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def watch_changes(die_at, count_to):
    folder, count = os.getcwd(), 0

    def hook(event, arguments):
        nonlocal count
        if not changes(event, arguments) or not os.path.abspath(os.fsdecode(arguments[0])).startswith(folder):
            return
        count += 1
        if count == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if count_to:
            record(count)

    def record(total):
        descriptor = os.open(count_to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(descriptor, str(total).encode())
        os.close(descriptor)

    sys.addaudithook(hook)


def changes(event, arguments):
    if event == "open":
        return isinstance(arguments[0], str | bytes) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
    return event in CHANGES


if __name__ == "__main__":
    main()
