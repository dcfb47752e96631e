"""The paper's grid: blocks that vary something, shared runs, usual baselines, the monitor, the estimate of hours."""

import copy
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fa_audit.core.errors import AuditError
from fa_audit.experiments.costs import network_of, read_costs, relative_time
from fa_audit.experiments.grid import read_grid
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = yaml.safe_load((ROOT / "schemas/config.schema.yaml").read_text())
PAPER = yaml.safe_load((ROOT / "config.yaml").read_text())
BLOCK = {
    "dataset": "digits",
    "architecture": {"name": "resmlp", "width": 16, "depth": 2},
    "epochs": 2,
    "seeds": [1],
    "runs": ["bp", "dfa"],
}


def grid_of(**blocks):
    return read_grid({"settings": copy.deepcopy(blocks)}, SCHEMA)


def without(block, *keys):
    return {key: value for key, value in block.items() if key not in keys}


def specs_of(grid):
    return {cell: grid.settings[cell[0]].spec(*cell[1:]) for cell in grid.all_cells()}


def test_the_paper_has_seventeen_settings_and_more_than_125_trainings():
    grid = read_grid(PAPER, SCHEMA)
    assert len({setting.block for setting in grid.settings.values()}) == len(PAPER["settings"]) == 17
    specs = specs_of(grid)
    assert len(set(specs.values())) == len(specs) - len(grid.twins) >= 125
    networks = {(spec.architecture, spec.dataset) for spec in specs.values()}
    assert {"resmlp", "vit_mini", "small_resnet", "bn_cnn", "student_mlp"} == {name for name, _ in networks}
    assert {"cifar10", "cifar100", "synthetic_teacher"} == {name for _, name in networks}


def test_every_audited_cell_of_the_paper_has_its_frozen_and_shallow_baselines():
    grid = read_grid(PAPER, SCHEMA)
    compared = 0
    for setting in grid.settings.values():
        for run in setting.runs:
            roles = setting.baselines_of(run)
            if setting.block == "frozen_baselines":
                assert roles == {}
                continue
            compared += 1
            own = setting.spec(roles["own"], setting.seeds[0])
            assert own.frozen_blocks == dict(own.architecture_options)["depth"]
            assert own.method == setting.spec(run, setting.seeds[0]).method
            assert (roles["bp"], roles["shallow"]) == ("bp+frozen", "bp+shallow")
    assert compared > 80


def test_every_block_of_the_paper_has_a_comment_that_says_where_it_belongs():
    lines = (ROOT / "config.yaml").read_text().splitlines()
    for block in PAPER["settings"]:
        above = lines[lines.index(f"  {block}:") - 1 :: -1]
        comment = " ".join(line for line in above[: next(i for i, x in enumerate(above) if not x.startswith("  #"))])
        assert "Section" in comment or "Appendix" in comment, block


def test_what_the_cpu_configuration_trains_is_part_of_the_paper_s_grid():
    grid = read_grid(PAPER, SCHEMA)
    small = read_grid(yaml.safe_load((ROOT / "configs/cpu.yaml").read_text()), SCHEMA)
    assert specs_of(small).items() <= specs_of(grid).items()
    assert {spec.architecture for spec in specs_of(small).values()} == {"resmlp", "student_mlp"}


def test_a_block_that_varies_something_is_one_setting_for_each_value():
    block = without(BLOCK, "epochs") | {"vary": {"epochs": [1, 3], "residual": [True, False]}}
    grid = grid_of(sweep=block)
    names = [f"sweep_epochs{count}_residual{flag}" for count in (1, 3) for flag in ("true", "false")]
    assert list(grid.settings) == names and {setting.block for setting in grid.settings.values()} == {"sweep"}
    found = [grid.settings[name].spec("dfa", 1) for name in names]
    assert [(spec.epochs, dict(spec.architecture_options)["residual"]) for spec in found] == [
        (1, True), (1, False), (3, True), (3, False)
    ]  # fmt: skip
    assert {dict(spec.architecture_options)["width"] for spec in found} == {16}


def test_figures_name_the_settings_that_vary_makes():
    config = {"settings": {"sweep": without(BLOCK, "epochs") | {"vary": {"epochs": [1, 3]}}}}
    config["tables"] = {"main_audit": {"settings": ["sweep_epochs3"], "title": "three"}}
    grid = read_grid(config, SCHEMA)
    assert grid.named(["sweep_epochs3", "sweep"]) == ["sweep_epochs3", "sweep_epochs1"]
    config["tables"]["main_audit"]["settings"] = ["sweep"]
    with pytest.raises(AuditError, match=r"found sweep_epochs1, sweep_epochs3; a figure or table of kind main_audit"):
        read_grid(config, SCHEMA)
    config["tables"]["main_audit"]["settings"] = ["swep"]
    with pytest.raises(AuditError, match=r"tables.main_audit.settings: unknown setting 'swep'.*Did you mean 'sweep'"):
        read_grid(config, SCHEMA)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vary": {"epochs": [1]}}, "settings.block.vary.epochs: given a second time outside 'vary'"),
        ({"vary": {"width": [1]}}, "settings.block.vary.width: given a second time"),
        ({"vary": {"terminal_norm": [1]}}, r"settings.block.vary.terminal_norm: found 1; expected a bool"),
        (
            {"vary": {"dept": [1, 2]}},
            r"\Aconfig: settings.block.vary: unknown option of resmlp 'dept'[^\n]*'depth'\?\Z",
        ),
        ({"vary": {"description": [1]}}, "settings.block.vary: unknown option of resmlp 'description'"),
        ({"vary": {"residual": [3]}, "architecture": {"name": "resnet"}}, "unknown architecture 'resnet'"),
        ({"vary": {"residual": []}}, "settings.block.vary.residual: found .*; expected a non-empty list"),
        ({"vary": {"residual": ["x"]}}, "expected an integer, true or false"),
        ({"vary": {"lr": [1]}}, "expected epochs, batch_size or an option"),
        ({"vary": {}}, "settings.block.vary: found {}; expected a mapping"),
        ({"vary": {"batch_size": [0]}}, "batch_size: found 0"),
    ],
)
def test_a_wrong_variation_is_refused(change, words):
    with pytest.raises(AuditError, match=words):
        grid_of(block=BLOCK | change)


def test_two_blocks_cannot_make_one_setting():
    varied = without(BLOCK, "epochs") | {"vary": {"epochs": [2]}}
    with pytest.raises(AuditError, match=r"makes a setting 'a_epochs2', and so does settings.a; rename one"):
        grid_of(a=varied, a_epochs2=BLOCK)


def test_a_run_that_settings_share_is_trained_in_the_first_of_them():
    ladder = without(BLOCK, "runs") | {"ladder": ["dfa"]}
    grid = grid_of(z=BLOCK, a=BLOCK | {"seeds": [1, 2]}, other=BLOCK | {"epochs": 3}, ladder=ladder)
    shared = {run: cell for (setting, run, seed), cell in grid.twins.items() if setting == "a" and seed == 1}
    names = ("bp", "dfa", "bp+frozen", "dfa+frozen", "bp+shallow")
    assert shared == {run: ("z", run, 1) for run in names}
    assert not any(setting in ("z", "other") or seed == 2 for setting, _, seed in grid.twins)
    assert grid.twins["ladder", "dfa", 1] == ("z", "dfa", 1) and ("ladder", "dfa+frozen1", 1) not in grid.twins


def test_two_names_of_one_specification_within_a_setting_are_trained_once():
    grid = grid_of(a=BLOCK | {"runs": ["dfa", "dfa+frozen2"], "baselines": ["bp+frozen", "dfa+frozen"]})
    assert grid.twins == {("a", "dfa+frozen", 1): ("a", "dfa+frozen2", 1)}


@given(
    st.lists(st.sampled_from(["bp", "dfa", "fa", "dfa+frozen", "bp+shallow", "fa+frozen1"]), min_size=1, unique=True)
)
def test_twins_have_the_specification_of_their_original_and_originals_are_unique(runs):
    grid = grid_of(a=BLOCK, b=BLOCK | {"runs": runs})
    specs = specs_of(grid)
    assert all(specs[cell] == specs[original] for cell, original in grid.twins.items())
    originals = [cell for cell in specs if cell not in grid.twins]
    assert len({specs[cell] for cell in originals}) == len(originals) == len(set(specs.values()))
    assert set(grid.twins.values()) <= set(originals)


def test_a_setting_without_a_list_gets_the_baselines_that_its_runs_need():
    runs = ["fa+random_targets", "dfa+penalty1e-2", "bp+frozen"]
    setting = grid_of(a=BLOCK | {"runs": runs}).setting("a")
    assert set(setting.baselines) == {"bp+frozen", "bp+shallow", "fa+frozen", "dfa+frozen"}
    assert grid_of(a=BLOCK | {"runs": ["bp+frozen", "dfa+shallow"]}).setting("a").baselines == ()
    assert grid_of(a=BLOCK | {"baselines": ["bp+frozen", "dfa+frozen"]}).setting("a").baselines == (
        "bp+frozen", "dfa+frozen"
    )  # fmt: skip


def test_a_baseline_that_is_audited_is_compared_with_nothing():
    setting = grid_of(a=BLOCK | {"runs": ["dfa", "dfa+frozen", "bp+shallow"]}).setting("a")
    assert setting.baselines_of("dfa+frozen") == setting.baselines_of("bp+shallow") == {}
    assert setting.baselines_of("dfa")["own"] == "dfa+frozen"


def test_the_monitor_is_for_runs_and_not_for_baselines():
    config = {"settings": {"a": BLOCK}, "monitor": {"stop_on": ["D2", "D1"]}, "thresholds": {"growth": 9}}
    setting = read_grid(config, SCHEMA).setting("a")
    assert setting.spec("dfa", 1).monitor == (("D1", 9.0), ("D2", 1e-7))
    assert setting.spec("dfa+frozen", 1).monitor == setting.spec("bp+shallow", 1).monitor == ()
    assert grid_of(a=BLOCK).setting("a").spec("dfa", 1).monitor == ()
    assert RunSpec.from_dict(setting.spec("dfa", 1).to_dict()) == setting.spec("dfa", 1)


@pytest.mark.parametrize("monitor", [{}, {"stop_on": []}, {"stop_on": ["D3"]}, {"stop_on": ["D1", "D1"]}, ["D1"]])
def test_a_wrong_monitor_is_refused(monitor):
    with pytest.raises(AuditError, match="monitor"):
        read_grid({"settings": {"a": BLOCK}, "monitor": monitor}, SCHEMA)


# --- costs -----------------------------------------------------------------------------------------------------------


def test_hours_are_epochs_times_the_measured_time_times_the_method_s(tmp_path):
    spec = grid_of(a=BLOCK).setting("a").spec("dfa", 1)
    entry = network_of(spec) | {
        "seconds_per_epoch": 1800.0,
        "seconds_per_audit": 36.0,
        "memory_mb": 9,
        "machine": "mine",
    }
    (tmp_path / "costs.json").write_text(json.dumps({"cpu": [entry]}))
    costs = read_costs(tmp_path / "costs.json")
    assert costs.training_hours(spec, "cpu") == pytest.approx(0.5 * 2 * relative_time("dfa"))
    assert costs.audit_hours(spec, "cpu") == pytest.approx(0.01) and costs.memory_mb(spec, "cpu") == 9
    assert (
        costs.training_hours(spec, "gpu") is None and costs.machines("cpu") == ["mine"] and costs.machines("gpu") == []
    )
    wider = grid_of(a=BLOCK | {"architecture": {"name": "resmlp", "width": 17, "depth": 2}}).setting("a").spec("dfa", 1)
    assert costs.training_hours(wider, "cpu") is None
    assert read_costs(tmp_path / "nothing.json").training_hours(spec, "cpu") is None


def test_the_time_of_a_method_is_what_its_class_declares():
    assert relative_time("bp") == 1.0 and relative_time("ep") > 5
    assert all(relative_time(name) > 0 for name in METHODS)


def test_every_network_of_the_paper_and_of_the_cpu_configuration_has_a_stored_benchmark():
    costs = read_costs(ROOT / "benchmarks/costs.json")
    for path in ("config.yaml", "configs/cpu.yaml"):
        grid = read_grid(yaml.safe_load((ROOT / path).read_text()), SCHEMA)
        missing = {json.dumps(network_of(s)) for s in specs_of(grid).values() if costs.training_hours(s, "cpu") is None}
        assert not missing, f"python benchmarks/costs.py --configfile {path} measures {missing}"
