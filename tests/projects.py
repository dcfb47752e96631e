"""A project folder to run Snakemake in, as a user would, and what its dry run plans."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from fa_audit.core.files import exclusive
from fa_audit.core.validation import validated
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.published import FILE, Published

ROOT = Path(__file__).resolve().parents[1]
PARTS = (
    "Snakefile",
    "rules",
    "workflow_scripts",
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
        options = {"copy_function": shutil.copyfile, "ignore": ignore, "symlinks": True}
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(ROOT / name, folder / name, **options)
    return folder


def slow(*cases):
    """Cases of a test that are for `make test-slow`."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def write_config(folder, config, name="tiny.yaml"):
    (folder / name).write_text(yaml.safe_dump(config))


def command(*arguments, config="tiny.yaml"):
    configured = ["--configfile", config] if config else []
    return [sys.executable, "-m", "snakemake", *arguments, "--resources", "gpu=0", *configured]


def python(folder, *arguments, **environment):
    """Run Python in a folder, with additions to the environment."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )


def snakemake(folder, *arguments, config="tiny.yaml", **environment):
    """Run Snakemake in a folder; returns the finished process with everything it said."""
    return subprocess.run(
        command(*arguments, config=config), cwd=folder, env=own_library(folder) | environment,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def started(folder, *arguments, stdout=subprocess.DEVNULL, **options):
    """Snakemake at work in a folder, in a session of its own."""
    return subprocess.Popen(
        command(*arguments), cwd=folder, env=own_library(folder), text=True, start_new_session=True,
        stdout=stdout, stderr=subprocess.STDOUT, **options,
    )  # fmt: skip


def own_library(folder):
    """The environment in which a copy of the project is installed, for commands that run in it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SNAKEMAKE")}
    return clean | {"PYTHONPATH": f"{folder}/src"}


def wait_for(log, words, process):
    """Wait until a log holds some words that a running process has yet to write."""
    deadline = time.monotonic() + 240
    while not (log.exists() and words in log.read_text()):
        assert time.monotonic() < deadline and process.poll() is None, f"no {words!r} in {log}"
        time.sleep(0.02)


def make_all(folder, config):
    """Everything of a configuration, in a folder without results, on two cores; what Snakemake
    said.
    """
    write_config(folder, config)
    done = snakemake(folder, "--cores", "2")
    assert done.returncode == 0, done.stdout
    return done.stdout


def read_published(raw):
    """Read published numbers as from a file with this content."""
    return validated(Published, raw, FILE)


EXPERIMENT = {  # of the first published number: the setting resmlp of configs/test.yaml
    "dataset": "digits",
    "architecture": {"name": "resmlp", "width": 8, "depth": 2},
    "epochs": 2,
    "batch_size": 128,
}
TINY = EXPERIMENT | {"seeds": [1], "runs": ["dfa"], "baselines": ["bp+frozen", "dfa+frozen"]}
COMMON = {"setting": "resmlp", "n": 1, "seeds": [1], "source": "a paper"}
VALUE = COMMON | {"kind": "value", "value": 0.5, "deviation": None, "tolerance": 0.5}
FLAG = {"run": "fa", "quantity": "scale_fires", "claim": "explodes", "kind": "verdict"}
PUBLISHED = {
    "claims": {"explodes": "FA explodes"},
    "scripts": {"released": {}},
    "settings": {"resmlp": EXPERIMENT | {"script": "released", "reason": "the only one"}},
    "entries": [
        VALUE | {"run": "bp", "quantity": "accuracy"},
        COMMON | FLAG | {"value": True},
        VALUE | {"run": "bp", "quantity": "clamped_cosine_at_input", "layer": 1},
        VALUE | {"run": "bp", "quantity": "test_accuracy", "epoch": 1},
    ],
}
MODEL = {
    "dataset": "digits",
    "model": "torchvision.models:resnet18",
    "arguments": {"num_classes": 10},
    "image_shape": [3, 32, 32],
    "blocks": "layer*.*",
    "reads": "spatial mean",
    "frozen_accuracy": 0.9,
    "batches": 1,
}
EVERYTHING = yaml.safe_load((ROOT / "configs/test.yaml").read_text()) | {
    "models": {"resnet18": MODEL}
}


def finished_project(tmp_path_factory):
    """A folder in which `EVERYTHING` has been made once, for all processes that share the tests."""
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    folder = shared / "everything"
    with exclusive(shared / "everything.lock"):
        if not (folder / "first.log").exists():
            copy_sources(folder)
            (folder / "reference/published.yaml").write_text(yaml.safe_dump(PUBLISHED))
            said = make_all(folder, EVERYTHING)
            (folder / "first.log").write_text(said)
    return folder


def audits(folder):
    """Every audit of a project, by its run."""
    paths = folder.glob("results/audits/*/*/*.json")
    return {RunKey.of(path): json.loads(path.read_text()) for path in paths}


def check_evidence(audit):
    """Check that every layer was measured, and that all blocks but the frozen ones moved if
    anything was trained.
    """
    for layer in audit["layers"]:
        assert math.isfinite(layer["hidden_norm"] * layer["grad_norm"])
    assert all(abs(block["cosine"]["value"]) <= 1 for block in audit["credit"])
    moved = [block["feature_drift"]["value"] > 0 for block in audit["credit"]]
    still = audit["spec"]["frozen_blocks"] if audit["spec"]["epochs"] else len(moved)
    assert moved == [index >= still for index in range(len(moved))], audit["spec"]
    assert len(audit["layers"]) == len(moved) + 1


def plan_of(said):
    """The jobs of a dry run, from what it said, as ``{rule: sorted wildcards}``: Snakemake's own
    order varies.
    """
    jobs = {}
    for block in re.split(r"\n *(?=\[|rule |localrule )", said):
        match = re.match(r"(?:local)?rule (\w+):", block)
        if match:
            wildcards = re.search(r"wildcards: (.*)", block)
            jobs.setdefault(match[1], []).append(wildcards[1] if wildcards else "")
    jobs.pop("all", None)
    return {rule: sorted(wildcards) for rule, wildcards in jobs.items()}


def planned(folder, *arguments, **options):
    """The jobs that a dry run would do."""
    done = snakemake(folder, "-n", *arguments, **options)
    assert done.returncode == 0, done.stdout
    return plan_of(done.stdout)
