"""Measure the time and the memory of a dry run of a large grid. Asserts nothing.

Prints a table of three dry runs in a fresh copy of the project without results: config.yaml (the
reference), a generated grid, and a lower bound for it: a bare Snakefile with as many jobs, each of
one script with at most one input and one output. Compare CPU times (user and system): wall time
also depends on the other processes of the machine.

    python benchmarks/planning.py [--runs N]
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fa_audit.methods import METHODS

ROOT = Path(__file__).resolve().parents[1]
ANYWHERE = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
PENALTIES = ("", "+penalty1e-4", "+penalty1e-3", "+penalty1e-2", "+penalty1e-1")
WIDTHS = (16, 32)
BARE = """
rule all:
    input: expand("made/{{run}}.json", run=range({pairs}))
rule train:
    output: "made/{{run}}.safetensors"
    script: "nothing.py"
rule audit:
    input: "made/{{run}}.safetensors"
    output: "made/{{run}}.json"
    script: "nothing.py"
"""


@dataclass(frozen=True)
class Measured:
    """Hold one dry run's number of jobs, wall and CPU time in seconds, and peak resident memory in
    MB (1e6 bytes).
    """

    name: str
    jobs: int
    wall: float
    cpu: float
    memory: float

    def __str__(self) -> str:
        per_job = f"{1e3 * self.cpu / self.jobs:8.2f}" if self.jobs > 1 else " " * 8
        return f"{self.name:<36}{self.jobs:>8}{self.wall:>10.1f}{self.cpu:>10.1f}{per_job}{self.memory:>10.0f}"


def generated_grid(runs: int) -> dict[str, Any]:
    """Return a configuration of at least `runs` distinct trainings, baselines included; nearly all
    are audited.
    """
    names = [method + penalty for method in METHODS for penalty in PENALTIES]
    a_seed = len(WIDTHS) * (
        len(names) + len(METHODS) + 1
    )  # with the frozen baseline of every method, and the shallow
    setting = {
        "dataset": "digits",
        "epochs": 2,
        "seeds": list(range(math.ceil(runs / a_seed))),
        "runs": names,
    }
    settings = {
        f"w{d}": setting | {"architecture": {"name": "resmlp", "width": d, "depth": 2}}
        for d in WIDTHS
    }
    shown = {"settings": [f"w{WIDTHS[0]}"], "title": "All methods"}
    return {
        "settings": settings,
        "figures": {"verdict_matrix": shown},
        "tables": {"comparison": shown},
    }


def dry_run(name: str, folder: Path, *arguments: str) -> Measured:
    """Measure a dry run that prints the number of jobs per rule (`--quiet`)."""
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "-n",
        "--quiet",
        "rules",
        *arguments,
    ]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        start = time.perf_counter()
        where = {"cwd": folder, "env": os.environ | {"PYTHONPATH": str(folder / "src")}}
        process = subprocess.Popen(command, **where, stdout=said, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        said.seek(0)
        text = said.read()
    if status:
        sys.exit(f"{' '.join(command)}\n{text}")
    jobs = int(re.findall(r"^total +(\d+)$", text, re.MULTILINE)[-1])
    return Measured(name, jobs, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def floor(folder: Path, jobs: int) -> Measured:
    """Measure a dry run of a bare Snakefile with as many jobs."""
    folder.mkdir()
    (folder / "Snakefile").write_text(BARE.format(pairs=(jobs - 1) // 2))
    (folder / "nothing.py").touch()
    return dry_run("Snakemake's floor", folder)


def left_out(folder: str, names: list[str]) -> set[str]:
    """Return what a copy of the project does without; src/fa_audit has folders named data and
    results, too.
    """
    return ANYWHERE(folder, names) | ({"results", "data"} if Path(folder) == ROOT else set())


def main() -> None:
    """Measure the three dry runs and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10_000, help="trainings of the generated grid")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print(f"{'dry run':<36}{'jobs':>8}{'wall s':>10}{'CPU s':>10}{'ms/job':>8}{'MB':>10}")
    with tempfile.TemporaryDirectory() as temporary:
        project = Path(temporary) / "project"
        shutil.copytree(ROOT, project, ignore=left_out)
        (project / "grid.yaml").write_text(yaml.safe_dump(generated_grid(options.runs)))
        print(dry_run("config.yaml", project), flush=True)
        grid = dry_run(f"a grid of {options.runs} runs", project, "--configfile", "grid.yaml")
        print(grid, flush=True)
        print(bare := floor(Path(temporary) / "bare", grid.jobs))
    print(f"\nthe grid takes {grid.cpu / bare.cpu:.1f} times Snakemake's floor")


if __name__ == "__main__":
    main()
