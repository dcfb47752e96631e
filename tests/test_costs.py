"""The estimate of hours: epochs times the measured time of a network times what the method declares."""

import json

import pytest
from projects import ROOT

from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.costs import declared, network_of, read_costs
from fa_audit.experiments.grid import read_grid
from fa_audit.experiments.spec import RunSpec

SPEC = RunSpec(
    dataset="digits", architecture="resmlp", architecture_options=(("depth", 2), ("width", 16)), method="dfa", epochs=2
)


def test_hours_are_epochs_times_the_measured_time_times_the_method_s(tmp_path):
    measured = {"seconds_per_epoch": 1800.0, "seconds_per_audit": 36.0, "memory_mb": 9, "machine": "mine"}
    (tmp_path / "costs.json").write_text(json.dumps({"cpu": [network_of(SPEC) | measured]}))
    costs = read_costs(tmp_path / "costs.json")
    assert costs.training_hours(SPEC, "cpu") == pytest.approx(0.5 * 2 * declared("dfa", "relative_time"))
    assert costs.audit_hours(SPEC, "cpu") == pytest.approx(0.01) and costs.memory_mb(SPEC, "cpu") == 9
    assert costs.training_hours(SPEC, "gpu") is None
    assert (costs.machines("cpu"), costs.machines("gpu")) == (["mine"], [])
    wider = RunSpec(**{name: getattr(SPEC, name) for name in ("dataset", "architecture", "method", "epochs")})
    assert costs.training_hours(wider, "cpu") is None
    assert read_costs(tmp_path / "nothing.json").training_hours(SPEC, "cpu") is None


@pytest.mark.parametrize("path", ["config.yaml", "configs/cpu.yaml"])
def test_every_network_of_the_paper_and_of_the_cpu_configuration_has_a_stored_benchmark(path):
    costs, grid = read_costs(ROOT / "benchmarks/costs.json"), read_grid(load_config(ROOT / path)[0])
    specs = {grid.setting(key.setting).spec(key.run, key.seed) for key in grid.all_run_keys()}
    missing = {json.dumps(network_of(spec)) for spec in specs if costs.training_hours(spec, "cpu") is None}
    assert not missing, f"python benchmarks/costs.py --configfile {path} measures {missing}"
