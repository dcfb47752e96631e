"""Every architecture, method and option of configs/ci.yaml, trained for two epochs on digits and
audited.
"""

import pandas as pd
import pytest
import yaml
from projects import ROOT, audits, check_evidence, copy_sources, planned, snakemake

from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES

OPTIONS = ("", "+penalty1e-2+frozen1+random_targets", "+frozen", "+shallow")
RUNS = {
    (architecture, method + option)
    for architecture in ARCHITECTURES
    for method in METHODS
    for option in OPTIONS
    # student_mlp is resmlp without terminal LayerNorm, bit for bit (tests/test_architectures.py)
    if not (architecture == "student_mlp" and method not in ("bp", "dfa"))
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = copy_sources(tmp_path_factory.mktemp("matrix") / "project")
    # One architecture at a time: whenever a job ends, Snakemake weighs all those that could start.
    for target in [
        *(f"results/tidy/{architecture}/runs.csv" for architecture in ARCHITECTURES),
        "all",
    ]:
        done = snakemake(folder, target, "--cores", "2", config="configs/ci.yaml")
        assert done.returncode == 0, done.stdout[-5000:]
    return folder


def test_the_configuration_asks_for_the_whole_matrix():
    config = yaml.safe_load((ROOT / "configs/ci.yaml").read_text())
    assert {
        (s["architecture"]["name"], run) for s in config["settings"].values() for run in s["runs"]
    } == RUNS


@pytest.mark.matrix
def test_everything_was_trained_and_audited_with_finite_evidence(finished):
    found = audits(finished)
    assert {(key.setting, key.run) for key in found} == RUNS
    for key, audit in found.items():
        check_evidence(audit)
        assert len(audit["credit"]) == (0 if "shallow" in key.run else 2), key
        assert "non-finite" not in audit["flags"], key
        for block in audit["credit"]:
            exact = audit["spec"]["method"] == "bp"
            assert not exact or block["cosine"]["value"] == pytest.approx(1)
    runs = pd.read_csv(finished / "results/tidy/runs.csv")
    assert set(zip(runs["setting"], runs["run"])) == RUNS
    assert planned(finished, config="configs/ci.yaml") == {}
