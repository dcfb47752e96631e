"""A project folder to run Snakemake in, as a user would, and what its dry run plans."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

PLAIN = "--logger-fa-audit-plain"  # Snakemake's own messages
ROOT = Path(__file__).resolve().parents[1]
PARTS = (
    "Snakefile",
    "rules",
    "workflow_scripts",
    "schemas",
    "profiles",
    "configs",
    "config.yaml",
    "envs",
    "benchmarks",
    "reference",
    "report",
    "src",
)


def copy_sources(folder):
    """A checkout: the same contents, new modification times."""
    folder.mkdir(exist_ok=True)
    for name in PARTS:
        if (ROOT / name).is_file():
            shutil.copyfile(ROOT / name, folder / name)
            continue
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, folder / name, copy_function=shutil.copyfile, ignore=ignore, dirs_exist_ok=True)
    return folder


def write_config(folder, config, name="tiny.yaml"):
    (folder / name).write_text(yaml.safe_dump(config))


def command(*arguments, config="tiny.yaml"):
    configured = ["--configfile", config] if config else []
    return [sys.executable, "-m", "snakemake", *arguments, PLAIN, "--resources", "gpu=0", *configured]


def snakemake(folder, *arguments, config="tiny.yaml", **environment):
    """Run Snakemake in a folder; returns the finished process with everything it said."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SNAKEMAKE")}
    return subprocess.run(
        command(*arguments, config=config),
        cwd=folder, env=clean | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def make_all(folder, config):
    """Everything of a configuration, in a folder without results, on two cores; what Snakemake said."""
    write_config(folder, config)
    done = snakemake(folder, "--cores", "2")
    assert done.returncode == 0, done.stdout
    return done.stdout


def planned(folder, *arguments, **options):
    """Jobs that a dry run would do, as ``{rule: sorted wildcards}``: Snakemake's own order is not always the same."""
    done = snakemake(folder, "-n", *arguments, **options)
    assert done.returncode == 0, done.stdout
    jobs = {}
    for block in re.split(r"\n *(?=\[|rule |localrule )", done.stdout):
        if match := re.match(r"(?:local)?rule (\w+):", block):
            wildcards = re.search(r"wildcards: (.*)", block)
            jobs.setdefault(match[1], []).append(wildcards[1] if wildcards else "")
    jobs.pop("all", None)
    return {rule: sorted(wildcards) for rule, wildcards in jobs.items()}


def checkpoints(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("results/checkpoints/**/*.safetensors"))
    }
