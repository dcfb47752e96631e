"""tools/evidence.py: searches without baselines are added to measured audits, and what they chose enters the
configuration.
"""

import sys

import pytest
from projects import ROOT

from fa_audit.data.dataset import load_dataset, prepare_data_file
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.tidy import read_tidy
from fa_audit.training.loop import train
from fa_audit.training.run_files import write_run

sys.path.insert(0, str(ROOT / "tools"))
import evidence

CONFIG = """settings:
  search:
    dataset: digits
    architecture: {name: resmlp, width: 8, depth: 1}
    epochs: 1
    validation: 0.1
    vary: {lr: [1.0e-3, 1.0e-2]}
    seeds: [1]
    runs: [bp, dfa]
  field:
    dataset: digits
    architecture: {name: resmlp, width: 8, depth: 1}
    seeds: [1]
    runs: &chosen
      [bp]
"""


@pytest.fixture
def trained(tmp_path):
    """Train a run of the configuration, and nothing else, as the workflow names its files."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    grid = read_grid(load_config(tmp_path / "config.yaml")[0])
    prepare_data_file("digits", tmp_path, tmp_path / "data/digits.safetensors")
    data = load_dataset(tmp_path / "data/digits.safetensors")

    def train_one(setting, run):
        key = RunKey(setting, run, 1)
        path = tmp_path / f"checkpoints/{key}.safetensors"
        files = {
            "sidecar": path.with_suffix(".json"),
            "trajectory": tmp_path / f"trajectories/{key}.csv",
        }
        write_run(train(grid.spec(key), data), path, **files, device="cpu", origin="test")

    return train_one


def measured(folder, monkeypatch, *more):
    given = [
        "--configfile",
        folder / "config.yaml",
        "--into",
        folder / "measured",
        "--audits",
        folder / "audited",
    ]
    monkeypatch.setattr(sys, "argv", ["evidence.py", *map(str, (folder, *given, *more))])
    evidence.main()
    chosen = (folder / "config.yaml").read_text().partition("&chosen\n      [")[2].partition("]")[0]
    return {path.parent.name: path for path in folder.glob("measured/*/audits.json")}, chosen


def test_a_search_needs_no_baselines_and_is_taken_when_it_is_whole(tmp_path, trained, monkeypatch):
    for setting, run in (
        ("search_lr1em3", "bp"),
        ("search_lr1em2", "bp"),
        ("search_lr1em3", "dfa"),
    ):
        trained(setting, run)
    files, chosen = measured(tmp_path, monkeypatch)
    runs = {setting: read_tidy([path]).runs.set_index("run") for setting, path in files.items()}
    assert [(setting, *table.index) for setting, table in sorted(runs.items())] == [
        ("search_lr1em2", "bp"), ("search_lr1em3", "bp")
    ]  # fmt: skip
    best = max(runs, key=lambda setting: runs[setting].loc["bp", "validation_acc"])
    assert chosen == {"search_lr1em2": "bp+lr1e-2", "search_lr1em3": "bp+lr1e-3"}[best]
    assert {table.loc["bp", "three_check"] for table in runs.values()} == {
        "INCOMPLETE(D3 not evaluated)"
    }

    trained("search_lr1em2", "dfa")
    paths = [files["search_lr1em3"], files["search_lr1em3"].with_name("trajectories.csv")]
    before = read_tidy(paths)
    _, chosen = measured(tmp_path, monkeypatch)
    after = read_tidy(paths)
    assert after.runs["audit"].tolist()[:1] == before.runs["audit"].tolist()
    assert after.only(["bp"]).trajectories.equals(before.trajectories)
    assert after.runs["run"].tolist() == ["bp", "dfa"]
    assert [name.partition("+lr")[0] for name in chosen.split(", ")] == ["bp", "dfa"]
