"""What README.md says about the demo, against the demo: its configuration, its output and its
numbers.
"""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from projects import ROOT, copy_sources, own_library, python

from fa_audit.experiments.read_grid import read_grid
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.kinds import KINDS

README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
LIMITS = DiagnosticThresholds().limits


def load(name):
    return yaml.safe_load((ROOT / f"configs/{name}.yaml").read_text())


def stated(pattern):
    """A number in README.md."""
    (number,) = re.findall(pattern, README)
    return float(number)


GROWTH = stated(r"grows by more than (\d+)x across one block")
FALL = stated(r"gradient falls by more than (\d+)x during training")
POINTS = stated(r"ends at least (\d+) points \*below\*")
RESCUED = stated(r"residual penalty of 1e-2 keeps the growth below (\d+)x")


def test_readme_counts_the_demos_networks():
    config = load("demo")
    grid = read_grid(config, KINDS)
    assert stated(r"trains (\d+) networks") == len(list(grid.all_run_keys())) - len(
        grid.duplicate_runs
    )
    assert stated(r"handwritten digits and audits (\d+)") == len(list(grid.run_keys("runs")))
    assert "On each of three seeds" in README and len(grid.setting("demo").seeds) == 3


def test_the_gallery_has_every_figure_and_table_of_the_demo_and_every_method_of_the_library():
    from fa_audit.methods import METHODS

    demo, gallery = load("demo"), load("gallery")
    assert all(demo[kind].keys() <= gallery[kind].keys() for kind in ("figures", "tables"))
    grid = read_grid(gallery, KINDS)
    assert {
        run.partition("+")[0] for setting in grid.settings.values() for run in setting.runs
    } == set(METHODS)
    assert (
        not demo["settings"].keys() & gallery["settings"].keys()
    )  # their results lie side by side


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A folder in which the demo has run, with its output in `demo.log`; FA_AUDIT_DEMO names one
    that is there.
    """
    if "FA_AUDIT_DEMO" in os.environ:
        return Path(os.environ["FA_AUDIT_DEMO"])
    folder = copy_sources(tmp_path_factory.mktemp("demo") / "project")
    options = ["--configfile", "configs/demo.yaml", "--cores", "all", "--resources", "gpu=0"]
    command = ["-m", "snakemake", *options]
    with (folder / "demo.log").open("w") as log:
        where = {"cwd": folder, "env": own_library(folder)}
        done = subprocess.run(
            [sys.executable, *command], **where, stdout=log, stderr=subprocess.STDOUT
        )
    assert done.returncode == 0, (folder / "demo.log").read_text()
    return folder


def table(folder, name):
    with (folder / f"results/tidy/demo/{name}.csv").open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.matrix
def test_the_demo_prints_its_plan_its_verdicts_and_where_its_results_are(demo):
    said = (demo / "demo.log").read_text()
    table, verdicts, done = (said.index(f"\n{word} ") for word in ("in all", "verdicts", "figures"))
    assert table < verdicts < done
    chatter = [path for path in demo.glob("results/logs/**/*.log") if "pruned" in path.read_text()]
    assert chatter == []


@pytest.mark.matrix
def test_every_seed_shows_what_readme_says(demo):
    runs = {(row["run"], row["seed"]): row for row in table(demo, "runs")}
    deepest = {}
    for row in table(demo, "trajectories"):
        if row["layer"] == "4":
            deepest.setdefault((row["run"], row["seed"]), []).append(float(row["grad_norm"]))
    seeds = {seed for _, seed in runs}
    assert len(seeds) == 3
    for seed in seeds:
        bp, dfa, rescued = (runs[run, seed] for run in ("bp", "dfa", "dfa+penalty1e-2"))
        assert (bp["three_check"], bp["four_check"]) == ("PASS", "trustworthy")
        assert (
            float(bp["stability"]) < LIMITS["stability"] - 0.05
        )  # another machine rounds otherwise
        assert float(bp["max_growth"]) < LIMITS["growth"] / 10
        assert float(bp["accuracy"]) - float(bp["own_frozen_acc"]) > 2 * LIMITS["depth_margin"]
        assert dfa["three_check"].startswith("FAIL") and dfa["four_check"].startswith(
            "needs walk-back"
        )
        assert float(dfa["max_growth"]) > GROWTH > 2 * LIMITS["growth"] - 1
        assert deepest["dfa", seed][0] > FALL * deepest["dfa", seed][-1]
        assert float(dfa["own_frozen_acc"]) - float(dfa["accuracy"]) > POINTS / 100
        assert float(rescued["max_growth"]) < RESCUED
    written = sum(path.stat().st_size for path in (demo / "results").glob("**/*") if path.is_file())
    assert written < 1e6 * stated(r"two CPU cores and (\d+) MB")
    assert python(demo, ROOT / "examples/smoke_test.py", "--results", "results").returncode == 0
