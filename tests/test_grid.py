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
from fa_audit.networks.states import READS
from fa_audit.results.artefacts import KINDS

CONFIGS = ["config.yaml", *(f"configs/{path.name}" for path in (ROOT / "configs").glob("*.yaml"))]
BLOCK = {
    "dataset": "digits",
    "architecture": {"name": "resmlp", "width": 16, "depth": 2},
    "epochs": 2,
    "seeds": [1],
    "runs": ["bp", "dfa"],
}


def grid_of(**blocks):
    return read_grid({"settings": blocks})


def setting_of(block):
    return grid_of(a=block).setting("a")


def shipped(path="config.yaml"):
    config, line_of = load_config(ROOT / path)
    return read_grid(config, KINDS, line_of)


def without(key):
    return {name: value for name, value in BLOCK.items() if name != key}


def specs_of(grid):
    return {key: grid.spec(key) for key in grid.all_run_keys()}


@pytest.mark.parametrize("path", CONFIGS)
def test_every_shipped_configuration_is_valid(path):
    assert list(shipped(path).run_keys("runs"))


def test_the_paper_has_every_network_with_published_numbers_and_more_than_125_trainings():
    grid = shipped()
    specs = specs_of(grid)
    assert len(set(specs.values())) == len(specs) - len(grid.duplicate_runs) >= 125
    without_numbers = {"small_resnet", "mlp"}
    assert {spec.architecture for spec in specs.values()} == set(ARCHITECTURES) - without_numbers


def test_every_audited_run_of_the_paper_has_its_frozen_baselines():
    compared = 0
    for setting in shipped().settings.values():
        for run in setting.runs:
            roles = setting.baselines_of(run)
            if setting.block.startswith("frozen_baselines"):
                assert roles == {}
                continue
            compared += 1
            names = (run, roles["own"], roles["bp"])
            spec, own, bp = (setting.spec(name, setting.seeds[0]) for name in names)
            depth = dict(spec.architecture_options)["depth"]
            plain = {"penalty": 0.0, "random_targets": False, "monitor": ()}
            assert own == replace(spec, frozen_blocks=depth, **plain)
            assert bp == replace(own, method="bp")
    assert compared > 150


@pytest.mark.parametrize(("name", "others"), [("cpu", False), ("measured", True)])
def test_what_smaller_configurations_train_is_part_of_the_paper_s_grid(name, others):
    """What was measured is also of scripts that the paper's settings are not of, under names of
    their own.
    """
    whole, found = shipped(), specs_of(shipped(f"configs/{name}.yaml"))
    same = {key: spec for key, spec in found.items() if key.setting in whole.settings}
    assert same.items() <= specs_of(whole).items() and (len(same) < len(found)) == others


def test_readings_are_those_of_the_code():
    assert set(ModelEntry.model_json_schema()["properties"]["reads"]["enum"]) == set(READS)


def test_a_setting_expands_to_full_specifications_of_its_runs_and_seeds():
    setting = setting_of(BLOCK | {"seeds": [7, 1], "lr": 1})
    expected = [RunKey("a", run, seed) for run in ("bp", "dfa") for seed in (1, 7)]
    assert list(setting.run_keys("runs")) == expected
    options = {"depth": 2, "residual": True, "terminal_norm": True, "width": 16}
    assert setting.spec("dfa+frozen", 7) == RunSpec(
        dataset="digits",
        architecture="resmlp",
        architecture_options=tuple(options.items()),
        method="dfa",
        frozen_blocks=2,
        epochs=2,
        lr=1.0,
        seed=7,
    )
    with pytest.raises(AuditError, match="'8'"):
        setting.spec("dfa", 8)


def test_a_sweep_is_every_method_at_every_penalty_and_a_ladder_every_number_of_frozen_blocks():
    sweep = {"methods": ["fa", "dfa"], "penalties": [0.1, 0, 1e-4]}
    setting = setting_of(BLOCK | {"sweep": sweep})
    found = {(spec.method, spec.penalty) for spec in map(setting.spec, setting.runs, [1] * 7)}
    assert found == {("bp", 0)} | {(m, p) for m in ("fa", "dfa") for p in (0, 1e-4, 0.1)}
    assert len(setting.runs) == 7  # dfa is in the list and in the sweep: trained once
    ladder = {"ladder": ["dfa"], "architecture": {"name": "resmlp", "depth": 4}}
    setting = setting_of(without("runs") | ladder)
    assert [setting.spec(run, 1).frozen_blocks for run in setting.runs] == [0, 1, 2, 3]


def test_labels_can_name_a_setting_its_runs_its_baselines_and_the_methods_of_a_sweep():
    sweep = {"methods": ["fa"], "penalties": [0.1]}
    setting = setting_of(
        BLOCK | {"sweep": sweep, "baselines": ["bp+frozen", "dfa+frozen", "fa+frozen"]}
    )
    runs = {"bp", "dfa", "fa+penalty1e-1", "bp+frozen", "dfa+frozen", "fa+frozen"}
    assert setting.labelled == {"a", "fa"} | runs


def test_snapshots_are_runs_after_earlier_epochs():
    sweep = {"ladder": ["ep"], "epochs": 3, "snapshots": [0, 2, 1, 3]}
    grid = grid_of(a=BLOCK | sweep, again=BLOCK | sweep | {"runs": ["bp+epoch2"], "snapshots": [1]})
    for run in ("bp", "dfa", "ep", "ep+frozen1", "dfa+frozen", "bp+shallow"):
        whole = grid.spec(RunKey("a", run, 1))
        for epoch in range(3):
            part = grid.spec(RunKey("a", f"{run}+epoch{epoch}", 1))
            assert part == replace(whole, snapshot=epoch)
    baselines = {"own": "dfa+frozen", "bp": "bp+frozen", "shallow": "bp+shallow"}
    found = grid.setting("a").baselines_of("dfa+epoch2")
    assert found == {role: f"{name}+epoch2" for role, name in baselines.items()}
    # What is trained above is copied, snapshots, too.
    assert {key for key in grid.all_run_keys() if key.setting == "again"} == {*grid.duplicate_runs}


def test_a_block_that_varies_something_is_one_setting_for_each_combination():
    varied = without("epochs") | {"vary": {"epochs": [1, 3], "residual": [True, False]}}
    grid = grid_of(sweep=varied)
    found = []
    for name in grid.named(["sweep"]):
        spec = grid.settings[name].spec("dfa", 1)
        flag = dict(spec.architecture_options)["residual"]
        assert name == f"sweep_epochs{spec.epochs}_residual{str(flag).lower()}"
        found.append((spec.epochs, flag))
    assert found == [(1, True), (1, False), (3, True), (3, False)]
    # Names are without points and signs.
    searched = {"lr": [0.0025, 1.0], "normalise": [False], "optimiser": ["sgd"]}
    grid = grid_of(tuned=BLOCK | {"validation": 0.1, "vary": searched})
    names = [f"tuned_lr{lr}_normalisefalse_optimisersgd" for lr in ("2p5em3", "1e0")]
    assert list(grid.settings) == names
    spec = grid.settings[names[0]].spec("dfa+frozen", 1)
    assert (spec.lr, spec.normalise, spec.optimiser, spec.validation) == (0.0025, False, "sgd", 0.1)


def test_a_setting_without_a_list_gets_the_baselines_that_its_runs_need():
    setting = setting_of(BLOCK | {"runs": ["fa+random_targets", "dfa+penalty1e-2", "bp+frozen"]})
    assert set(setting.baselines) == {"bp+frozen", "bp+shallow", "fa+frozen", "dfa+frozen"}
    roles = {"own": "dfa+frozen", "bp": "bp+frozen", "shallow": "bp+shallow"}
    assert setting.baselines_of("dfa+penalty1e-2") == roles
    assert setting.baselines_of("bp+frozen") == {}
    assert setting_of(BLOCK | {"runs": ["bp+frozen", "dfa+shallow"]}).baselines == ()
    named = ["bp+frozen", "dfa+frozen"]
    assert setting_of(BLOCK | {"baselines": named}).baselines == tuple(named)


def test_the_monitor_is_for_runs_and_not_for_baselines():
    limits = {"monitor": {"stop_on": ["D2", "D1"]}, "thresholds": {"growth": 9}}
    setting = read_grid({"settings": {"a": BLOCK}} | limits).setting("a")
    assert setting.spec("dfa", 1).monitor == (("D1", 9.0), ("D2", 1e-7))
    assert setting.spec("dfa+frozen", 1).monitor == setting.spec("bp+shallow", 1).monitor == ()
    assert setting_of(BLOCK).spec("dfa", 1).monitor == ()


def test_a_run_that_settings_share_is_trained_in_the_first_of_them():
    ladder = without("runs") | {"ladder": ["dfa"]}
    grid = grid_of(z=BLOCK, a=BLOCK | {"seeds": [1, 2]}, other=BLOCK | {"epochs": 3}, ladder=ladder)
    duplicates, specs = grid.duplicate_runs, specs_of(grid)
    shared = ("bp", "dfa", "bp+frozen", "dfa+frozen", "bp+shallow")
    expected = {("a", run, 1): ("z", run, 1) for run in shared}
    expected |= {("ladder", run, 1): ("z", run, 1) for run in (*shared[1:],)}
    assert duplicates == expected
    assert all(specs[key] == specs[original] for key, original in duplicates.items())
    assert len(set(specs.values())) == len(specs) - len(duplicates)


def test_frozen_blocks_may_have_a_rate_of_their_own():
    runs = ["bp+lr2e-4", "dfa+lr1e-2+unnormalised", "dfa+epoch1"]
    baselines = ["bp+lr3e-4+frozen", "dfa+lr3e-3+frozen", "dfa+frozen+epoch1", "bp+frozen+epoch1"]
    setting = setting_of(BLOCK | {"runs": runs, "baselines": baselines})
    assert setting.baselines_of(runs[1]) == {"own": baselines[1], "bp": baselines[0]}
    assert setting.baselines_of("dfa+epoch1") == {"own": baselines[2], "bp": baselines[3]}
    assert "own" not in setting_of(BLOCK).baselines_of("dfa+lr1e-2")  # a rate must be named
    two = BLOCK | {"runs": runs[:2], "baselines": [*baselines, "dfa+lr1e-3+frozen"]}
    with pytest.raises(AuditError, match="expected one"):
        setting_of(two)
