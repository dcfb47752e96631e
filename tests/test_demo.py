"""What README.md says about the demo, against the demo: its configuration, its output and its
numbers.
"""

import re

import pandas as pd
import pytest
import yaml
from projects import ROOT, copy_sources, python, snakemake

from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import parse_run
from fa_audit.methods import METHODS
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.artefacts import KINDS

README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
LIMITS = DiagnosticThresholds().limits


def grid_of(name):
    return read_grid(yaml.safe_load((ROOT / f"configs/{name}.yaml").read_text()), KINDS)


def stated(pattern):
    """A number in README.md."""
    (number,) = re.findall(pattern, README)
    return float(number)


def test_readme_counts_the_demos_networks():
    grid = grid_of("demo")
    trained = len(list(grid.all_run_keys())) - len(grid.duplicate_runs)
    assert stated(r"trains (\d+) networks") == trained
    assert stated(r"handwritten digits and audits (\d+)") == len(list(grid.run_keys("runs")))
    assert "On each of three seeds" in README and len(grid.setting("demo").seeds) == 3


def test_the_gallery_has_every_method_of_the_library_and_its_results_lie_beside_the_demo_s():
    demo, gallery = grid_of("demo").settings, grid_of("gallery").settings
    runs = [run for setting in gallery.values() for run in setting.runs]
    assert {parse_run(run).method for run in runs} == set(METHODS)
    assert not demo.keys() & gallery.keys()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A folder in which the demo has run, with its output in `demo.log`."""
    folder = copy_sources(tmp_path_factory.mktemp("demo") / "project")
    done = snakemake(folder, "--cores", "all", config="configs/demo.yaml")
    assert done.returncode == 0, done.stdout
    (folder / "demo.log").write_text(done.stdout)
    return folder


def table(folder, name):
    return pd.read_csv(folder / f"results/tidy/demo/{name}.csv")


@pytest.mark.matrix
def test_the_demo_prints_its_plan_its_verdicts_and_where_its_results_are(demo):
    said = (demo / "demo.log").read_text()
    table, verdicts, done = map(said.index, ("\nin all ", "\nverdicts ", "\nresults/figures/\n"))
    assert table < verdicts < done
    assert not any("pruned" in path.read_text() for path in demo.glob("results/logs/**/*.log"))


@pytest.mark.matrix
def test_every_seed_shows_what_readme_says(demo):
    growth = stated(r"grows by more than (\d+)x across one block")
    assert growth > 2 * LIMITS["growth"] - 1
    runs, trajectories = table(demo, "runs"), table(demo, "trajectories")
    deepest = trajectories[trajectories["layer"] == 4].set_index("run")
    by_run = runs.set_index("run")
    bp, dfa, rescued = (by_run.loc[name] for name in ("bp", "dfa", "dfa+penalty1e-2"))
    assert len(bp) == len(dfa) == len(rescued) == 3
    assert (bp["three_check"] == "PASS").all() and (bp["four_check"] == "trustworthy").all()
    # Another machine rounds otherwise.
    assert (bp["stability"] < LIMITS["stability"] - 0.05).all()
    assert (bp["max_growth"] < LIMITS["growth"] / 10).all()
    assert (bp["accuracy"] - bp["own_frozen_acc"] > 2 * LIMITS["depth_margin"]).all()
    assert dfa["three_check"].str.startswith("FAIL").all()
    assert dfa["four_check"].str.startswith("needs walk-back").all()
    assert (dfa["max_growth"] > growth).all()
    points = stated(r"ends at least (\d+) points \*below\*")
    assert (dfa["own_frozen_acc"] - dfa["accuracy"] > points / 100).all()
    assert (
        rescued["max_growth"] < stated(r"residual penalty of 1e-2 keeps the growth below (\d+)x")
    ).all()
    norms = deepest.loc["dfa"].groupby("seed")["grad_norm"]
    fall = stated(r"gradient falls by more than (\d+)x during training")
    assert (norms.first() > fall * norms.last()).all()
    assert python(demo, ROOT / "examples/smoke_test.py", "--results", "results").returncode == 0
