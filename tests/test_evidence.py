"""tools/evidence.py: trained runs are added to measured audits, and those that are there stay."""

import sys

import evidence
import pytest

from fa_audit.data.dataset import load_dataset, prepare_data_file
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.tidy import read_tidy
from fa_audit.training.loop import train
from fa_audit.training.run_files import write_run

CONFIG = """settings:
  small:
    dataset: digits
    architecture: {name: resmlp, width: 8, depth: 1}
    epochs: 1
    seeds: [1]
    runs: [bp, dfa]
"""


@pytest.fixture
def trained(tmp_path):
    """Train a run of the configuration, and nothing else, as the workflow names its files."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    grid = read_grid(load_config(tmp_path / "config.yaml")[0])
    prepare_data_file("digits", tmp_path, tmp_path / "data/digits.safetensors")
    data = load_dataset(tmp_path / "data/digits.safetensors")

    def train_one(run):
        key = RunKey("small", run, 1)
        path = tmp_path / f"checkpoints/{key}.safetensors"
        files = {
            "sidecar": path.with_suffix(".json"),
            "trajectory": tmp_path / f"trajectories/{key}.csv",
        }
        write_run(train(grid.spec(key), data), path, **files, device="cpu", origin="test")
        audit = tmp_path / f"audits/{key}.json"
        audit.parent.mkdir(parents=True)
        audit.touch()  # the workflow's says that the run is done

    return train_one


def test_new_audits_join_those_that_are_there(tmp_path, trained, monkeypatch):
    options = {"--configfile": "config.yaml", "--into": "measured", "--audits": "audited"}
    given = [word for name, path in options.items() for word in (name, str(tmp_path / path))]
    monkeypatch.setattr(sys, "argv", ["evidence.py", str(tmp_path), *given])
    packed = [tmp_path / "measured/small" / name for name in ("audits.json", "trajectories.csv")]

    trained("bp")
    evidence.main()
    before = read_tidy(packed)
    assert before.runs["three_check"].tolist() == ["INCOMPLETE(D3 not evaluated)"]

    trained("dfa")
    (tmp_path / "checkpoints/small/bp/seed1.safetensors").unlink()  # not needed again
    (tmp_path / "audits/small/bp/seed1.json").unlink()
    evidence.main()
    after = read_tidy(packed)
    assert after.runs["run"].tolist() == ["bp", "dfa"]
    assert after.runs["audit"].tolist()[:1] == before.runs["audit"].tolist()
    assert after.only(["bp"]).trajectories.equals(before.trajectories)
