"""Many calls of a command line for the price of one import: a process that has imported it forks
for every call.

    python tests/forks.py fa_audit.cli MODULE ...

imports the modules, then reads an order in JSON from every line of its input and answers each with
a line:

    {"start": [arguments], "folder": path, "environment": {name: value}, "faults": {name: value}}
    ->    process id {"wait": process id}
     ->    [exit status, output]
"""

import atexit
import json
import os
import subprocess
import sys
import traceback
from importlib import import_module
from typing import NamedTuple

SNAKEMAKE_S = ("api", "dag", "workflow", "report", "scheduling.job_scheduler", "executors.dryrun")
SNAKEMAKE = (
    *(f"snakemake.{name}" for name in SNAKEMAKE_S),
    "smart_open",
    "yte",
    "jsonschema",
    "numpy",
    "safetensors",
)


class Outcome(NamedTuple):
    """How a call ended: its exit status (negative: the signal that killed it) and everything it
    said.
    """

    status: int
    said: str


class Server:
    """The process that forks; PYTHONPATH in its environment says whose code runs."""

    def __init__(self, command_line, *modules, **environment):
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("SNAKEMAKE")
        }
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        command = [sys.executable, __file__, command_line, *modules]
        self.process = subprocess.Popen(command, env=clean | environment, text=True, **pipes)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def _ask(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, folder, *arguments, environment=(), **faults):
        """Start a call in a folder and return its process id."""
        order = {"folder": str(folder), "environment": dict(environment), "faults": faults}
        return self._ask(start=list(map(str, arguments)), **order)

    def wait(self, process):
        return Outcome(*self._ask(wait=process))

    def run(self, folder, *arguments, **options):
        return self.wait(self.start(folder, *arguments, **options))


def snakemake_calls(folder, calls):
    """The outcome of every call of Snakemake, one after the other: its arguments and additions to
    the environment.

    A call whose environment has a PROJECT runs in that folder instead of `folder`.
    """
    with Server("snakemake.cli", *SNAKEMAKE) as server:
        return [
            server.run(more.get("PROJECT", folder), *words, environment=more)
            for words, more in calls
        ]


def _main(command_line, *modules):
    program, pipes = import_module(command_line).main, {}
    for name in modules:
        import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            answer, pipe = _start(program, **order)
            pipes[answer] = pipe
        else:
            answer = _wait(order["wait"], pipes.pop(order["wait"]))
        print(json.dumps(answer), flush=True)


def _start(program, start, folder, environment, faults):
    reading, writing = os.pipe()
    if process := os.fork():
        os.close(writing)
        return process, reading
    for descriptor, mine in enumerate((os.open(os.devnull, os.O_RDONLY), writing, writing)):
        os.dup2(mine, descriptor)
    os.environ.update(environment)
    os.chdir(folder)
    if os.path.isdir("src"):  # a copy of the project, which is its own installation
        os.environ["PYTHONPATH"] = os.path.abspath("src")
        sys.path.insert(0, os.environ["PYTHONPATH"])
    sys.argv = ["", *start]
    os._exit(_run(program, start, faults))


def _run(program, arguments, faults):
    """Return the exit status of the command line."""
    try:
        if faults:
            import_module("faults.injected").inject(**faults)
        return program(arguments) or 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()


def _wait(process, pipe):
    with open(pipe, "rb") as stream:
        output = stream.read().decode(errors="replace")
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), output


if __name__ == "__main__":
    _main(*sys.argv[1:])
