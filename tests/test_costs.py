"""Estimates of hours: by what was measured of a network, a method and its frozen blocks, else by
backpropagation's.
"""

import json
from dataclasses import replace

import pytest
from projects import ROOT, TINY, copy_sources, python, write_config

from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.costs import DECIDING, own_benchmarks, read_costs
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods.info import INFO

SPEC = RunSpec(
    dataset="digits",
    architecture="resmlp",
    architecture_options=(("depth", 2), ("width", 16)),
    method="dfa",
    epochs=2,
)
BP = replace(SPEC, method="bp")


def row(spec, **measured):
    return {name: spec.to_dict()[name] for name in DECIDING} | {"machine": "mine"} | measured


@pytest.fixture
def costs(tmp_path):
    rows = [
        row(BP, seconds_per_epoch=1800.0, seconds_per_audit=26.0, start_seconds=10.0, memory_mb=9),
        row(replace(BP, frozen_blocks=2), seconds_per_epoch=180.0),
        row(replace(SPEC, method="fa"), seconds_per_epoch=900.0),
        row(replace(SPEC, frozen_blocks=2), seconds_per_epoch=90.0),
    ]
    (tmp_path / "costs.json").write_text(json.dumps({"cpu": rows}))
    return read_costs(tmp_path / "costs.json")


@pytest.mark.parametrize(
    ("change", "hours", "measured"),  # of two epochs, and whether they were measured
    [
        ({"method": "bp"}, 1 + 10 / 3600, True),
        ({"frozen_blocks": 2}, 0.05, True),
        ({"method": "fa", "penalty": 0.1, "random_targets": True}, 0.5, True),  # cost nothing
        ({"method": "fa", "frozen_blocks": 1}, 0.5, False),  # as without frozen blocks
        ({}, 10 / 3600 + INFO["dfa"].relative_time, False),  # of backpropagation's
        ({"method": "ep", "frozen_blocks": 2}, 0.1 * INFO["ep"].relative_time, False),
    ],
)
def test_hours_are_those_of_the_nearest_row_and_say_whether_it_is_the_run_s_own(
    costs, change, hours, measured
):
    found = costs.training_hours(replace(SPEC, **change), "cpu")
    assert found == (pytest.approx(hours), measured)


def test_what_was_never_measured_has_no_hours(costs, tmp_path):
    assert costs.audit_hours(replace(SPEC, frozen_blocks=2), "cpu") == (pytest.approx(0.01), True)
    wider = replace(SPEC, architecture_options=(("depth", 2), ("width", 17)))
    assert costs.training_hours(SPEC, "gpu") is costs.training_hours(wider, "cpu") is None
    assert read_costs(tmp_path / "nothing.json").audit_hours(SPEC, "cpu") is None


def test_results_that_were_timed_replace_stored_costs_on_their_device(costs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = SPEC.to_dict() | {"epochs": 4, "seed": 7}
    facts = {"spec": spec, "stopped_after": None, "seconds": 7000.0}
    facts["provenance"] = {"device": "cuda (NVIDIA H200)"}
    files = {"checkpoints": json.dumps(facts), "audits": json.dumps(facts)}
    for rule, seconds in (("train_network", 7200.5), ("audit_network", 360.5)):
        files[f"benchmarks/{rule}"] = f"s\th:m:s\tmax_rss\n{seconds}\t2:00:00\t1\n"
    for folder, text in files.items():
        ending = "tsv" if folder.startswith("benchmarks") else "json"
        path = tmp_path / f"results/{folder}/small/dfa/seed7.{ending}"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    found = read_costs(tmp_path / "costs.json", own_benchmarks())
    assert found.training_hours(SPEC, "gpu") == (pytest.approx(1, rel=1e-3), True)
    assert found.audit_hours(SPEC, "gpu") == (pytest.approx(0.1, rel=2e-3), True)
    assert found.training_hours(SPEC, "cpu") == costs.training_hours(SPEC, "cpu")
    # Damaged ones, which are made again.
    for text in ("{", json.dumps(facts | {"spec": {"dataset": "digits"}})):
        for folder in ("checkpoints", "audits"):
            (tmp_path / f"results/{folder}/small/dfa/seed7.json").write_text(text)
        assert read_costs("costs.json", own_benchmarks()).training_hours(SPEC, "gpu") is None


@pytest.mark.slow
def test_what_a_configuration_asks_for_is_measured_and_what_is_there_is_kept(tmp_path):
    write_config(copy_sources(tmp_path), {"settings": {"tiny": TINY}})
    options = (("depth", 2), ("residual", True), ("terminal_norm", True), ("width", 8))
    frozen = replace(BP, architecture_options=options, batch_size=128, frozen_blocks=2)
    there = row(frozen, seconds_per_epoch=1.0)
    (tmp_path / "benchmarks/costs.json").write_text(json.dumps({"cpu": [there]}))
    call = ["benchmarks/costs.py", "--only", "frozen", "--configfile", "tiny.yaml"]
    said = python(tmp_path, *call, PYTHONPATH=str(tmp_path / "src")).stdout
    first, *rows = json.loads((tmp_path / "benchmarks/costs.json").read_text())["cpu"]
    assert first == there and "3 rows measured now, 0 still" in said
    measured = [(row["method"], row["frozen_blocks"]) for row in rows]
    assert measured == [("bp", 0), ("dfa", 0), ("dfa", 2)]
    for each in rows:
        assert each["seconds_per_epoch"] > 0 and each["start_seconds"] > 0
        assert each["memory_mb"] > 100


@pytest.mark.parametrize("path", ["config.yaml", "configs/demo.yaml", "configs/gallery.yaml"])
def test_every_network_of_the_configurations_has_a_stored_benchmark(path):
    costs, grid = read_costs(ROOT / "benchmarks/costs.json"), read_grid(load_config(ROOT / path)[0])
    specs = {grid.setting(key.setting).spec(key.run, key.seed) for key in grid.all_run_keys()}
    hours = {json.dumps(row(spec)): costs.training_hours(spec, "cpu") for spec in specs}
    missing = [spec for spec, found in hours.items() if not (found and found.measured)]
    assert not missing, f"python benchmarks/costs.py --configfile {path} measures {missing}"
