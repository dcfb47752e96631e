"""Every architecture, method and option, trained for two epochs on digits and audited, through Snakemake itself."""

import json
import math

import pandas as pd
import pytest
import yaml
from projects import ROOT, copy_sources, planned, snakemake

from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES

OPTIONS = ("", "+penalty1e-2+frozen1+random_targets", "+frozen", "+shallow")
NO_BLOCKS = "without blocks there is nothing to transport: it is fa+shallow bit for bit (tests/test_transport.py)"
TWIN = "student_mlp is resmlp without terminal LayerNorm, bit for bit (tests/test_architectures.py)"
SKIPPED = {  # (architecture, method, option) -> why
    (architecture, method, "+shallow"): NO_BLOCKS
    for architecture in ARCHITECTURES
    for method in ("usf", "brsf", "frsf", "kolen_pollack")
}
SKIPPED |= {
    ("student_mlp", method, option): TWIN for method in METHODS for option in OPTIONS if method not in ("bp", "dfa")
}
CELLS = [
    (architecture, method, option)
    for architecture in ARCHITECTURES
    for method in METHODS
    for option in OPTIONS
    if (architecture, method, option) not in SKIPPED
]


@pytest.fixture(scope="session")
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
    assert all(SKIPPED.values()) and len(CELLS) + len(SKIPPED) == len(ARCHITECTURES) * len(METHODS) * len(OPTIONS)


def test_everything_was_trained_for_two_epochs(finished):
    for architecture, method, option in CELLS:
        facts = json.loads(read(finished, "checkpoints", architecture, method + option).read_text())
        spec = facts["spec"]
        assert (spec["architecture"], spec["method"], spec["epochs"]) == (architecture, method, 2)
        asked = (spec["penalty"], spec["frozen_blocks"], spec["random_targets"], spec["shallow"])
        depth = spec["architecture_options"]["depth"]
        assert (
            asked
            == {
                "": (0, 0, False, False),
                "+penalty1e-2+frozen1+random_targets": (0.01, 1, True, False),
                "+frozen": (0, depth, False, False),
                "+shallow": (0, 0, False, True),
            }[option]
        )
        history = pd.read_csv(read(finished, "trajectories", architecture, method + option, "csv"))
        assert sorted(set(history["epoch"])) == [1, 2] and history["hidden_norm"].between(1e-9, 1e9).all()
        assert facts["accuracy"] == history["test_accuracy"].iloc[-1] and facts["stopped_after"] is None


def test_everything_was_audited_with_finite_evidence(finished):
    for architecture, method, option in CELLS:
        audit = json.loads(read(finished, "audits", architecture, method + option).read_text())
        blocks = 0 if option == "+shallow" else 2
        assert len(audit["layers"]) == blocks + 1 and len(audit["credit"]) == blocks, (architecture, method, option)
        assert "non-finite" not in audit["flags"]
        assert all(math.isfinite(layer["hidden_norm"] * layer["grad_norm"]) for layer in audit["layers"])
        assert all(layer["float32_cosine"]["value"] > 0.999 for layer in audit["layers"])
        for block in audit["credit"]:
            assert abs(block["cosine"]["value"]) <= 1 and abs(block["rho_bp"]["value"]) > 0.9
        evaluated = audit["checks"]["depth"]["fires"] is not None
        assert evaluated == (option not in ("+frozen", "+shallow"))


def test_the_credits_of_backpropagation_are_the_gradients_at_the_blocks_outputs(finished):
    for architecture in ARCHITECTURES:
        for block in json.loads(read(finished, "audits", architecture, "bp").read_text())["credit"]:
            assert block["cosine_at_output"]["value"] == pytest.approx(1, abs=1e-9)


def test_only_what_should_move_has_moved(finished):
    for architecture, method, option in CELLS:
        audit = json.loads(read(finished, "audits", architecture, method + option).read_text())
        moved = [block["feature_drift"]["value"] > 0 for block in audit["credit"]]
        expected = {"": [True, True], "+frozen": [False, False], "+shallow": []}.get(option, [False, True])
        assert moved == expected, (architecture, method, option)


def test_the_table_has_every_run_and_nothing_is_left_to_do(finished):
    runs = pd.read_csv(finished / "results/tidy/runs.csv")
    assert set(zip(runs["setting"], runs["run"])) == {(name, method + option) for name, method, option in CELLS}
    for architecture in ARCHITECTURES:
        rows = sum(architecture == name for name, _, _ in CELLS)
        assert (finished / f"results/tables/{architecture}.md").read_text().count(
            "\n|"
        ) == rows + 2  # the head and the line below it
    assert planned(finished, config="configs/ci.yaml") == {}
