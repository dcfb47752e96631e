"""Estimates of hours: by what was measured of a network, a method and its frozen blocks, else by
backpropagation's.
"""

import json
import re
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
WIDTH_8 = (("depth", 2), ("residual", True), ("terminal_norm", True), ("width", 8))
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


RELATIVE = INFO["dfa"].relative_time
HOURS = {  # hours of two epochs, and whether they were measured
    "its own": ({"method": "bp"}, 1 + 10 / 3600, True),
    "frozen": ({"frozen_blocks": 2}, 0.05, True),
    "penalty and random targets cost nothing": (
        {"method": "fa", "penalty": 0.1, "random_targets": True},
        0.5,
        True,
    ),
    "without frozen blocks": ({"method": "fa", "frozen_blocks": 1}, 0.5, False),
    "backpropagation's": ({}, 10 / 3600 + RELATIVE, False),
    "backpropagation's, frozen": (
        {"method": "ep", "frozen_blocks": 2},
        0.1 * INFO["ep"].relative_time,
        False,
    ),
}


@pytest.mark.parametrize("case", HOURS)
def test_hours_are_those_of_the_nearest_row_and_say_whether_it_is_the_run_s_own(costs, case):
    change, hours, measured = HOURS[case]
    spec = replace(SPEC, **change)
    assert costs.training_hours(spec, "cpu") == (pytest.approx(hours), measured)


def test_what_was_never_measured_has_no_hours(costs, tmp_path):
    assert costs.audit_hours(replace(SPEC, frozen_blocks=2), "cpu") == (pytest.approx(0.01), True)
    wider = replace(SPEC, architecture_options=(("depth", 2), ("width", 17)))
    assert costs.training_hours(SPEC, "gpu") is costs.training_hours(wider, "cpu") is None
    assert read_costs(tmp_path / "nothing.json").audit_hours(SPEC, "cpu") is None


def test_results_that_were_timed_replace_stored_costs_on_their_device(costs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    facts = {
        "spec": SPEC.to_dict() | {"epochs": 4, "seed": 7},
        "stopped_after": None,
        "seconds": 7000.0,
    }
    for name, rule, seconds in (
        ("checkpoints", "train_network", 7200),
        ("audits", "audit_network", 360),
    ):
        written = facts | {"provenance": {"device": "cuda (NVIDIA H200)"}}
        for kind, ending, text in (
            (name, "json", json.dumps(written)),
            (f"benchmarks/{rule}", "tsv", f"s\th:m:s\tmax_rss\n{seconds}.5\t2:00:00\t1\n"),
        ):
            path = tmp_path / f"results/{kind}/small/dfa/seed7.{ending}"
            path.parent.mkdir(parents=True)
            path.write_text(text)
    found = read_costs(tmp_path / "costs.json", own_benchmarks())
    assert found.training_hours(SPEC, "gpu") == (pytest.approx(1, rel=1e-3), True)
    assert found.audit_hours(SPEC, "gpu") == (pytest.approx(0.1, rel=2e-3), True)
    assert found.training_hours(SPEC, "cpu") == costs.training_hours(SPEC, "cpu")
    (tmp_path / "results/checkpoints/small/dfa/seed7.json").write_text(
        "{"
    )  # damaged: it is made again
    assert read_costs("costs.json", own_benchmarks()).training_hours(SPEC, "gpu") is None


@pytest.mark.slow
def test_what_a_configuration_asks_for_is_measured_and_what_is_there_is_kept(tmp_path):
    write_config(copy_sources(tmp_path), {"settings": {"tiny": TINY}})
    there = row(
        replace(BP, architecture_options=WIDTH_8, batch_size=128, frozen_blocks=2),
        seconds_per_epoch=1.0,
    )
    (tmp_path / "benchmarks/costs.json").write_text(json.dumps({"cpu": [there]}))
    options = ["--configfile", "tiny.yaml"]
    said = [
        python(tmp_path, *call, *options, PYTHONPATH=str(tmp_path / "src")).stdout
        for call in (["benchmarks/costs.py", "--only", "frozen"], ["-m", "snakemake", "-n"])
    ]
    rows = json.loads((tmp_path / "benchmarks/costs.json").read_text())["cpu"]
    assert [(row["method"], row["frozen_blocks"]) for row in rows] == [
        ("bp", 2),
        ("bp", 0),
        ("dfa", 0),
        ("dfa", 2),
    ]
    assert rows[0] == there and "3 rows measured, 0 more are missing" in said[0]
    assert all(
        row["seconds_per_epoch"] > 0 and row["start_seconds"] > 0 and row["memory_mb"] > 100
        for row in rows[1:]
    )
    assert (
        0.5 < rows[1]["times_bp"] < 2 and rows[3]["times_bp"] < 2 * rows[2]["times_bp"]
    )  # dfa, frozen
    assert re.search(r"^in all +3 +0 +0 +0\.\d+ +\?$", said[1], re.MULTILINE), said[1]


@pytest.mark.parametrize(
    "path", ["config.yaml", "configs/cpu.yaml", "configs/demo.yaml", "configs/gallery.yaml"]
)
def test_every_network_of_the_configurations_has_a_stored_benchmark(path):
    costs, grid = read_costs(ROOT / "benchmarks/costs.json"), read_grid(load_config(ROOT / path)[0])
    specs = {grid.setting(key.setting).spec(key.run, key.seed) for key in grid.all_run_keys()}
    hours = {json.dumps(row(spec)): costs.training_hours(spec, "cpu") for spec in specs}
    missing = [spec for spec, found in hours.items() if not (found and found.measured)]
    assert not missing, f"python benchmarks/costs.py --configfile {path} measures {missing}"
