"""A configuration expands to settings, runs, baselines and specifications; shared runs are trained
once.
"""

from dataclasses import replace

import pytest
from projects import ROOT

from fa_audit.core.errors import AuditError
from fa_audit.experiments.config import ModelEntry
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import RunSpec
from fa_audit.networks import ARCHITECTURES
from fa_audit.networks.readings import READS
from fa_audit.results.kinds import KINDS

CONFIGS = [ROOT / "config.yaml", *sorted((ROOT / "configs").glob("*.yaml"))]
PAPER = ROOT / "config.yaml"
BLOCK = {
    "dataset": "digits",
    "architecture": {"name": "resmlp", "width": 16, "depth": 2},
    "epochs": 2,
    "seeds": [1],
    "runs": ["bp", "dfa"],
}


def grid_of(**blocks):
    return read_grid({"settings": blocks})


def shipped(path):
    config, line_of = load_config(path)
    return read_grid(config, KINDS, line_of)


def without(block, *keys):
    return {key: value for key, value in block.items() if key not in keys}


def specs_of(grid):
    return {key: grid.setting(key.setting).spec(key.run, key.seed) for key in grid.all_run_keys()}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_configuration_is_valid(path):
    grid = shipped(path)
    assert list(grid.run_keys("runs")) and list(grid.run_keys("baselines"))


def test_the_paper_has_every_network_with_published_numbers_and_more_than_125_trainings():
    grid = shipped(PAPER)
    specs = specs_of(grid)
    assert len(set(specs.values())) == len(specs) - len(grid.duplicate_runs) >= 125
    without_numbers = {"small_resnet", "mlp"}
    assert {spec.architecture for spec in specs.values()} == set(ARCHITECTURES) - without_numbers
    assert {spec.dataset for spec in specs.values()} == {"cifar10", "cifar100", "synthetic_teacher"}


def test_every_audited_run_of_the_paper_has_its_frozen_and_shallow_baselines():
    compared = 0
    for setting in shipped(PAPER).settings.values():
        for run in setting.runs:
            roles = setting.baselines_of(run)
            if setting.block.startswith("frozen_baselines"):
                assert roles == {}
                continue
            compared += 1
            spec, own = (setting.spec(name, setting.seeds[0]) for name in (run, roles["own"]))
            assert own == replace(
                spec, frozen_blocks=dict(own.architecture_options)["depth"], penalty=0.0,
                random_targets=False, monitor=(),
            )  # fmt: skip
            assert setting.spec(roles["bp"], setting.seeds[0]) == replace(own, method="bp")
    assert compared > 150


@pytest.mark.parametrize(("name", "others"), [("cpu", False), ("measured", True)])
def test_what_smaller_configurations_train_is_part_of_the_paper_s_grid(name, others):
    """What was measured is also of scripts that the paper's settings are not of, under names of
    their own.
    """
    whole = shipped(PAPER)
    found = specs_of(shipped(ROOT / f"configs/{name}.yaml"))
    same = {key: spec for key, spec in found.items() if key.setting in whole.settings}
    assert same.items() <= specs_of(whole).items() and (len(same) < len(found)) == others


def test_readings_are_those_of_the_code():
    assert set(ModelEntry.model_json_schema()["properties"]["reads"]["enum"]) == set(READS)


def test_a_setting_expands_to_full_specifications_of_its_runs_and_seeds():
    setting = grid_of(a=BLOCK | {"seeds": [7, 1], "lr": 1}).setting("a")
    assert [str(key) for key in setting.run_keys("runs")] == [
        f"a/{run}/seed{seed}" for run in ("bp", "dfa") for seed in (1, 7)
    ]
    assert setting.spec("dfa+frozen", 7) == RunSpec(
        dataset="digits",
        architecture="resmlp",
        architecture_options=(
            ("depth", 2),
            ("residual", True),
            ("terminal_norm", True),
            ("width", 16),
        ),
        method="dfa",
        frozen_blocks=2,
        epochs=2,
        lr=1.0,
        seed=7,
    )
    with pytest.raises(AuditError, match=r"unknown run 'dfa\+shallow'"):
        setting.spec("dfa+shallow", 1)
    with pytest.raises(AuditError, match="unknown seed '8'; known: 1, 7"):
        setting.spec("dfa", 8)


def test_a_sweep_is_every_method_at_every_penalty_the_penalty_rising():
    sweep = {"methods": ["fa", "dfa"], "penalties": [0.1, 0, 1e-4]}
    setting = grid_of(a=BLOCK | {"sweep": sweep}).setting("a")
    expected = [
        f"{method}{penalty}"
        for method in ("fa", "dfa")
        for penalty in ("", "+penalty1e-4", "+penalty1e-1")
    ]
    assert list(setting.sweep) == expected
    assert sorted(setting.runs) == sorted(
        {"bp", *expected}
    )  # dfa is a run of the list and of the sweep: trained once
    assert [setting.spec(run, 1).penalty for run in expected] == [0, 1e-4, 0.1] * 2


def test_a_ladder_has_one_rung_per_number_of_trainable_top_blocks():
    setting = grid_of(
        a=without(BLOCK, "runs")
        | {"ladder": ["dfa"], "architecture": {"name": "resmlp", "depth": 4}}
    )
    setting = setting.setting("a")
    assert [4 - setting.spec(run, 1).frozen_blocks for run in (*setting.runs, "dfa+frozen")] == [
        4,
        3,
        2,
        1,
        0,
    ]


def test_snapshots_are_runs_after_earlier_epochs():
    sweep = {
        "sweep": {"methods": ["fa"], "penalties": [0.1]},
        "ladder": ["ep"],
        "epochs": 3,
        "snapshots": [0, 2, 1, 3],
    }
    grid = grid_of(a=BLOCK | sweep, again=BLOCK | sweep | {"runs": ["bp+epoch2"], "snapshots": [1]})
    for run in ("bp", "dfa", "fa+penalty1e-1", "ep", "ep+frozen1", "dfa+frozen", "bp+shallow"):
        names = [run, *(f"{run}+epoch{epoch}" for epoch in range(3))]
        whole, *parts = (RunKey("a", name, 1) for name in names)
        assert [grid.spec(key) for key in parts] == [
            replace(grid.spec(whole), snapshot=epoch) for epoch in range(3)
        ]
    setting = grid.setting("a")
    baselines = {
        "own": "dfa+frozen+epoch2",
        "bp": "bp+frozen+epoch2",
        "shallow": "bp+shallow+epoch2",
    }
    assert (
        setting.baselines_of("dfa+epoch2") == baselines
        and setting.baselines_of("dfa+frozen+epoch2") == {}
    )
    copied = {
        key for key in grid.all_run_keys() if key.setting == "again"
    }  # trained above, snapshots, too
    assert copied == grid.duplicate_runs.keys() and all(
        grid.spec(k) == grid.spec(v) for k, v in grid.duplicate_runs.items()
    )


def test_a_block_that_varies_something_is_one_setting_for_each_combination():
    grid = grid_of(
        sweep=without(BLOCK, "epochs") | {"vary": {"epochs": [1, 3], "residual": [True, False]}}
    )
    names = [
        f"sweep_epochs{count}_residual{flag}" for count in (1, 3) for flag in ("true", "false")
    ]
    assert list(grid.settings) == names == grid.named(["sweep"])
    found = [grid.settings[name].spec("dfa", 1) for name in names]
    assert [(spec.epochs, dict(spec.architecture_options)["residual"]) for spec in found] == [
        (1, True), (1, False), (3, True), (3, False)
    ]  # fmt: skip
    assert grid.named([names[2], "sweep"])[:2] == [names[2], names[0]]
    searched = {"lr": [0.0025, 1.0], "normalise": [False], "optimiser": ["sgd"]}
    grid = grid_of(
        tuned=BLOCK | {"validation": 0.1, "vary": searched}
    )  # names without points and signs
    assert list(grid.settings) == [
        f"tuned_lr{lr}_normalisefalse_optimisersgd" for lr in ("2p5em3", "1e0")
    ]
    spec = grid.settings["tuned_lr2p5em3_normalisefalse_optimisersgd"].spec("dfa+frozen", 1)
    assert (spec.lr, spec.normalise, spec.optimiser, spec.validation) == (0.0025, False, "sgd", 0.1)


def test_a_setting_without_a_list_gets_the_baselines_that_its_runs_need():
    runs = ["fa+random_targets", "dfa+penalty1e-2", "bp+frozen"]
    setting = grid_of(a=BLOCK | {"runs": runs}).setting("a")
    assert set(setting.baselines) == {"bp+frozen", "bp+shallow", "fa+frozen", "dfa+frozen"}
    roles = {"own": "dfa+frozen", "bp": "bp+frozen", "shallow": "bp+shallow"}
    assert (
        setting.baselines_of("dfa+penalty1e-2") == roles and setting.baselines_of("bp+frozen") == {}
    )
    assert grid_of(a=BLOCK | {"runs": ["bp+frozen", "dfa+shallow"]}).setting("a").baselines == ()
    named = grid_of(a=BLOCK | {"baselines": ["bp+frozen", "dfa+frozen"]}).setting("a")
    assert named.baselines == ("bp+frozen", "dfa+frozen")


def test_the_monitor_is_for_runs_and_not_for_baselines():
    config = {
        "settings": {"a": BLOCK},
        "monitor": {"stop_on": ["D2", "D1"]},
        "thresholds": {"growth": 9},
    }
    setting = read_grid(config).setting("a")
    assert setting.spec("dfa", 1).monitor == (("D1", 9.0), ("D2", 1e-7))
    assert setting.spec("dfa+frozen", 1).monitor == setting.spec("bp+shallow", 1).monitor == ()
    assert grid_of(a=BLOCK).setting("a").spec("dfa", 1).monitor == ()
    own = read_grid(config | {"settings": {"a": BLOCK | {"monitor": {"stop_on": ["D1"]}}}}).setting(
        "a"
    )
    assert own.spec("dfa", 1).monitor == (("D1", 9.0),)


def test_a_run_that_settings_share_is_trained_in_the_first_of_them():
    ladder = without(BLOCK, "runs") | {"ladder": ["dfa"]}
    grid = grid_of(z=BLOCK, a=BLOCK | {"seeds": [1, 2]}, other=BLOCK | {"epochs": 3}, ladder=ladder)
    duplicates = grid.duplicate_runs
    shared = {
        key.run: original
        for key, original in duplicates.items()
        if key.setting == "a" and key.seed == 1
    }
    assert shared == {
        run: ("z", run, 1) for run in ("bp", "dfa", "bp+frozen", "dfa+frozen", "bp+shallow")
    }
    assert not any(key.setting in ("z", "other") or key.seed == 2 for key in duplicates)
    specs = specs_of(grid)
    assert all(specs[key] == specs[original] for key, original in duplicates.items())
    assert len(set(specs.values())) == len(specs) - len(duplicates)
    assert (
        duplicates["ladder", "dfa", 1] == ("z", "dfa", 1)
        and ("ladder", "dfa+frozen1", 1) not in duplicates
    )
