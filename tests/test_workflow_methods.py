"""Methods in the workflow: one that lives outside the project, penalty sweeps, the depth-utility ladder, costs."""

import json

import pandas as pd
import pytest
from projects import copy_sources, make_all, planned, snakemake, write_config

MINE = '''"""A method of a user's own."""

from dataclasses import dataclass, replace
from typing import ClassVar

from fa_audit.methods.dfa import DFA
from my_signs import signs


@dataclass(frozen=True)
class SignDFA(DFA):
    summary: ClassVar[str] = "DFA with the signs of its credit"
    relative_time: ClassVar[float] = 7.5
    memory_mb: ClassVar[int] = 500

    def credits(self, network, trace, labels, state):
        credits = super().credits(network, trace, labels, state)
        return replace(credits, blocks=tuple(map(signs, credits.blocks)))
'''
SIGNS = "def signs(credit):\n    return credit.sign()\n"
NAME = "my_method:SignDFA"
CONFIG = {
    "settings": {
        "tiny": {
            "dataset": "digits",
            "architecture": {"name": "resmlp", "width": 16, "depth": 3},
            "epochs": 2,
            "batch_size": 64,
            "seeds": [1],
            "runs": [NAME],
            "sweep": {"methods": ["dfa"], "penalties": [0.01, 0]},
            "ladder": ["dfa"],
            "baselines": ["bp+frozen", "dfa+frozen", f"{NAME}+frozen"],
        }
    },
    "tables": {"main_audit": {"settings": ["tiny"], "title": "tiny"}},
    "labels": {NAME: "Signs"},
}
AUDITED = (NAME, "dfa", "dfa+penalty1e-2", "dfa+frozen1", "dfa+frozen2")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder with a method beside the Snakefile, in which the grid has been run once."""
    folder = copy_sources(tmp_path_factory.mktemp("methods") / "project")
    (folder / "my_method.py").write_text(MINE)
    (folder / "my_signs.py").write_text(SIGNS)
    make_all(folder, CONFIG)
    return folder


def audit_of(folder, run):
    return json.loads((folder / f"results/audits/tiny/{run}/seed1.json").read_text())


def test_a_method_outside_the_project_is_trained_and_audited_under_its_own_name(finished):
    audit = audit_of(finished, NAME)
    assert audit["spec"]["method"] == NAME and audit["verdict"]["baseline"] == f"{NAME}+frozen"
    assert audit["credit"] != audit_of(finished, "dfa")["credit"]
    assert audit["headline_acc"] != audit_of(finished, "dfa")["headline_acc"]
    assert "Signs" in (finished / "results/tables/main_audit.md").read_text()


def test_the_ladder_trains_the_top_blocks_only(finished):
    runs = pd.read_csv(finished / "results/tidy/tiny/runs.csv")
    assert sorted(runs["run"]) == sorted(AUDITED)
    frozen = [audit_of(finished, run)["spec"]["frozen_blocks"] for run in ("dfa", "dfa+frozen1", "dfa+frozen2")]
    assert frozen == [0, 1, 2]
    drift = [layer["feature_drift"]["value"] for layer in audit_of(finished, "dfa+frozen2")["credit"]]
    assert drift[:2] == [0, 0] and drift[2] > 0


def test_every_trajectory_of_the_sweep_is_a_file_that_ends_with_the_credit_metrics(finished):
    for run, penalty in (("dfa", 0), ("dfa+penalty1e-2", 0.01)):
        table = pd.read_csv(finished / f"results/sweeps/tiny/{run}/seed1.csv")
        history = pd.read_csv(finished / f"results/trajectories/tiny/{run}/seed1.csv")
        deep = audit_of(finished, run)["deep"]
        assert table["epoch"].tolist() == [1, 2] and set(table["penalty"]) == {penalty}
        last = history[history["epoch"] == 2]
        assert table["deep_cosine"].iloc[-1] == pytest.approx(last[last["layer"] >= 1]["cosine"].mean())
        assert table["hidden_norm_last"].iloc[-1] == last["hidden_norm"].iloc[-1]
        assert table["max_growth"].iloc[-1] == pytest.approx(last["growth"].max())
        for column, name in (("deep_rho", "rho"), ("deep_nudging", "nudging"), ("fresh_b_mean", "fresh_b_null")):
            assert table[column].iloc[-1] == pytest.approx(deep[name]["value"]) and pd.isna(table[column].iloc[0])


def test_the_sweep_s_table_has_one_row_per_method_penalty_and_seed(finished):
    table = pd.read_csv(finished / "results/sweeps/tiny.csv")
    assert table[["method", "penalty", "seed", "epoch"]].values.tolist() == [["dfa", 0, 1, 2], ["dfa", 0.01, 1, 2]]
    assert table[["deep_rho", "deep_nudging", "fresh_b_mean", "fresh_b_std"]].notna().all(axis=None)
    assert table["hidden_norm_last"].iloc[1] < table["hidden_norm_last"].iloc[0]  # what a penalty is for


def test_a_second_run_has_nothing_to_do(finished):
    assert planned(finished) == {}


@pytest.mark.parametrize("edited", ["my_method.py", "my_signs.py"])
def test_an_edit_to_the_method_or_to_what_it_imports_retrains_that_method_only(finished, edited):
    path = finished / edited
    before = path.read_text()
    path.write_text(before + "# edited\n")
    try:
        jobs = planned(finished)
    finally:
        path.write_text(before)
    assert jobs["train_network"] == sorted(f"setting=tiny, run={NAME}{option}, seed=1" for option in ("", "+frozen"))


def requested(folder, run):
    """The resources that the plan gives to the training of a run."""
    said = snakemake(folder, f"results/checkpoints/tiny/{run}/seed1.json", "-n", "--forceall").stdout
    return next(block for block in said.split("\n\n") if "rule train_network" in block).partition("resources: ")[2]


def test_what_a_method_declares_scales_time_and_memory(finished):
    assert "runtime=34," in requested(finished, "dfa") and "mem_mb=2000," in requested(finished, "dfa")
    assert "runtime=60," in requested(finished, NAME) and "mem_mb=2500," in requested(finished, NAME)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere:Mine", "no file of the module 'nowhere'"),
        ("my_method:Other", "no class 'Other'"),
        ("../my_method:SignDFA", "unknown method"),
        ("my_signs:signs", "no class 'signs'"),
    ],
)
def test_a_method_that_cannot_be_found_is_named_before_anything_starts(finished, name, words):
    setting = CONFIG["settings"]["tiny"] | {"runs": [name]}
    write_config(finished, {"settings": {"tiny": setting}}, "wrong.yaml")
    done = snakemake(finished, "-n", config="wrong.yaml")
    assert done.returncode == 1 and words in done.stdout and "Traceback" not in done.stdout
