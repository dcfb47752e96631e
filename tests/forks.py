"""Many calls of Snakemake for the price of one import: a process that has imported it forks for every call."""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SNAKEMAKE_S = ("api", "cli", "dag", "workflow", "report", "scheduling.job_scheduler", "executors.dryrun")
MODULES = (*(f"snakemake.{name}" for name in SNAKEMAKE_S), "smart_open", "yte", "jsonschema", "numpy", "safetensors")


@dataclass(frozen=True)
class Outcome:
    """How a call ended: its exit status (negative: the signal that killed it) and everything it said."""

    status: int
    said: str


def snakemake_calls(folder, calls):
    """The outcome of every call, one after the other: its arguments and additions to the environment.

    A call whose environment has a PROJECT runs in that folder instead of `folder`.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SNAKEMAKE")}
    with tempfile.TemporaryDirectory() as told:
        asked, answered = Path(told, "calls.json"), Path(told, "outcomes.json")
        asked.write_text(json.dumps(calls))
        subprocess.run([sys.executable, __file__, asked, answered], cwd=folder, env=clean, check=True)
        return [Outcome(*values) for values in json.loads(answered.read_text())]


def _forked(arguments, environment):
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if not child:
            _call(arguments, environment, said.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return status, said.read().decode(errors="replace")


def _call(arguments, environment, output):
    """Snakemake's own command line; never returns."""
    from snakemake.cli import main

    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.environ.update(environment)
    os.chdir(os.environ.get("PROJECT", "."))
    sys.argv = ["snakemake", *arguments]
    status = 70
    try:
        main(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else end.code is not None
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    import snakemake.cli

    for name in MODULES:  # once, for all calls: what they import when they start
        importlib.import_module(name)
    snakemake.cli.get_argument_parser()
    Path(".snakemake").mkdir(exist_ok=True)
    asked, answered = map(Path, sys.argv[1:])
    answered.write_text(json.dumps([_forked(*call) for call in json.loads(asked.read_text())]))
