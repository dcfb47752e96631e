"""Every architecture, method and option of configs/ci.yaml, trained for two epochs on digits and audited."""

import json
import math

import pandas as pd
import pytest
import yaml
from projects import ROOT, copy_sources, planned, snakemake

from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES

OPTIONS = ("", "+penalty1e-2+frozen1+random_targets", "+frozen", "+shallow")
TRANSPORT = ("usf", "brsf", "frsf", "kolen_pollack")  # without blocks they are fa+shallow bit for bit
CELLS = [
    (architecture, method, option)
    for architecture in ARCHITECTURES
    for method in METHODS
    for option in OPTIONS
    if not (option == "+shallow" and method in TRANSPORT)
    # student_mlp is resmlp without terminal LayerNorm, bit for bit (tests/test_architectures.py)
    and not (architecture == "student_mlp" and method not in ("bp", "dfa"))
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = copy_sources(tmp_path_factory.mktemp("matrix") / "project")
    # One architecture at a time: whenever a job ends, Snakemake weighs all those that could start.
    for target in [*(f"results/tidy/{architecture}/runs.csv" for architecture in ARCHITECTURES), "all"]:
        done = snakemake(folder, target, "--cores", "2", config="configs/ci.yaml")
        assert done.returncode == 0, done.stdout[-5000:]
    return folder


def read(folder, kind, architecture, run, ending="json"):
    return folder / f"results/{kind}/{architecture}/{run}/seed42.{ending}"


def test_the_configuration_asks_for_the_whole_matrix():
    config = yaml.safe_load((ROOT / "configs/ci.yaml").read_text())
    asked = {(s["architecture"]["name"], run) for s in config["settings"].values() for run in s["runs"]}
    assert asked == {(architecture, method + option) for architecture, method, option in CELLS}


@pytest.mark.matrix
def test_everything_was_trained_as_asked_and_audited_with_finite_evidence(finished):
    for architecture, method, option in CELLS:
        facts = json.loads(read(finished, "checkpoints", architecture, method + option).read_text())
        spec = facts["spec"]
        asked = (spec["penalty"], spec["frozen_blocks"], spec["random_targets"], spec["shallow"])
        expected = {OPTIONS[0]: (0, 0, False, False), OPTIONS[1]: (0.01, 1, True, False)}
        expected |= {"+frozen": (0, 2, False, False), "+shallow": (0, 0, False, True)}
        assert (spec["architecture"], spec["method"], asked) == (architecture, method, expected[option])
        history = pd.read_csv(read(finished, "trajectories", architecture, method + option, "csv"))
        assert sorted(set(history["epoch"])) == [1, 2] and facts["accuracy"] == history["test_accuracy"].iloc[-1]
        audit = json.loads(read(finished, "audits", architecture, method + option).read_text())
        blocks = 0 if option == "+shallow" else 2
        assert len(audit["layers"]) == blocks + 1 and len(audit["credit"]) == blocks, (architecture, method, option)
        assert "non-finite" not in audit["flags"]
        assert all(math.isfinite(layer["hidden_norm"] * layer["grad_norm"]) for layer in audit["layers"])
        assert all(abs(block["cosine"]["value"]) <= 1 for block in audit["credit"])
        moved = [block["feature_drift"]["value"] > 0 for block in audit["credit"]]
        assert moved == {"": [True, True], "+frozen": [False, False], "+shallow": []}.get(option, [False, True])
        if method == "bp":
            assert all(block["cosine_at_output"]["value"] == pytest.approx(1, abs=1e-9) for block in audit["credit"])


@pytest.mark.matrix
def test_the_tables_have_every_run_and_nothing_is_left_to_do(finished):
    runs = pd.read_csv(finished / "results/tidy/runs.csv")
    assert set(zip(runs["setting"], runs["run"])) == {(name, method + option) for name, method, option in CELLS}
    for architecture in ARCHITECTURES:
        rows = (finished / f"results/tables/{architecture}.md").read_text().count("\n|") - 2  # the head
        assert rows == sum(architecture == name for name, _, _ in CELLS)
    assert planned(finished, config="configs/ci.yaml") == {}
