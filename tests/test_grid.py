"""A configuration is either expanded completely or answered with one message that says what is valid."""

import copy
import inspect
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fa_audit import DiagnosticThresholds
from fa_audit.core.errors import AuditError
from fa_audit.core.registry import load
from fa_audit.experiments.grid import read_grid
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURE_OPTIONS, ARCHITECTURES

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = yaml.safe_load((ROOT / "schemas/config.schema.yaml").read_text())
DEMO = yaml.safe_load((ROOT / "configs/demo.yaml").read_text())
CONFIGS = [ROOT / "config.yaml", *sorted((ROOT / "configs").glob("*.yaml"))]


def changed(**values):
    """The demo's first setting alone, with other values."""
    config = copy.deepcopy(DEMO)
    config["settings"] = {"demo": config["settings"]["demo"] | values}
    return {"settings": config["settings"]}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_configuration_is_valid(path):
    grid = read_grid(yaml.safe_load(path.read_text()), SCHEMA)
    assert list(grid.cells("runs")) and list(grid.cells("baselines"))


def test_the_demo_expands_to_every_run_and_seed_with_full_specifications():
    grid = read_grid(DEMO, SCHEMA)
    demo = grid.setting("demo")
    assert len(list(demo.cells("runs"))) == 12 and len(list(demo.cells("baselines"))) == 12
    specs = [grid.setting(setting).spec(run, seed) for setting, run, seed in grid.cells("runs")]
    assert {spec.method for spec in specs} == set(METHODS)
    frozen = grid.setting("demo").spec("dfa+frozen", 42)
    assert frozen == RunSpec(
        dataset="digits",
        architecture="resmlp",
        architecture_options=(("depth", 4), ("residual", True), ("terminal_norm", True), ("width", 128)),
        method="dfa",
        frozen_blocks=4,
        epochs=DEMO["settings"]["demo"]["epochs"],
        batch_size=32,
        seed=42,
    )


def test_a_sweep_is_every_method_at_every_penalty_the_penalty_rising():
    sweep = {"methods": ["fa", "dfa"], "penalties": [0.1, 0, 1e-4]}
    setting = read_grid(changed(sweep=sweep, runs=["bp", "dfa"]), SCHEMA).setting("demo")
    expected = [f"{method}{penalty}" for method in ("fa", "dfa") for penalty in ("", "+penalty1e-4", "+penalty1e-1")]
    assert list(setting.sweep) == expected
    assert sorted(setting.runs) == sorted({"bp", *expected})  # dfa is a run of the list and of the sweep: trained once
    assert [setting.spec(run, 42).penalty for run in expected] == [0, 1e-4, 0.1] * 2


def test_a_ladder_has_one_rung_per_number_of_trainable_top_blocks():
    config = changed(ladder=["dfa"])
    for key in ("sweep", "runs"):
        del config["settings"]["demo"][key]
    config["labels"] = {"dfa+frozen3": "top block"}
    setting = read_grid(config, SCHEMA).setting("demo")
    rungs = [*setting.runs, "dfa+frozen"]
    assert [4 - setting.spec(run, 42).frozen_blocks for run in rungs] == [4, 3, 2, 1, 0]


def test_a_setting_without_anything_to_audit_is_refused():
    config = changed()
    for key in ("sweep", "runs"):
        del config["settings"]["demo"][key]
    with pytest.raises(AuditError, match="expected runs, a sweep or a ladder"):
        read_grid(config, SCHEMA)


def test_a_run_is_compared_with_its_own_methods_frozen_baseline():
    setting = read_grid(DEMO, SCHEMA).setting("demo")
    assert setting.baselines_of("dfa+penalty1e-2") == {"own": "dfa+frozen", "bp": "bp+frozen", "shallow": "bp+shallow"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epoch": 3}, ["settings.demo", "unknown key 'epoch'", "Did you mean 'epochs'"]),
        ({"epochs": "many"}, ["settings.demo.epochs", "'many'", "an integer"]),
        ({"epochs": 0}, ["settings.demo.epochs", "found 0"]),
        ({"lr": float("nan")}, ["settings.demo.lr", "nan", "finite"]),
        ({"seeds": [42, 42]}, ["settings.demo.seeds", "different integers"]),
        ({"seeds": [-1]}, ["settings.demo.seeds.0", "found -1"]),
        ({"seeds": ["a"]}, ["settings.demo.seeds.0", "'a'"]),
        ({"seeds": [True]}, ["settings.demo.seeds.0", "True"]),
        ({"seeds": [42.0]}, ["settings.demo.seeds.0", "42.0"]),
        ({"epochs": 2.0}, ["settings.demo.epochs", "2.0"]),
        ({"lr": "1e-3"}, ["settings.demo.lr", "1.0e-3"]),
        ({"architecture": {"name": "resmlp", "width": "x"}}, ["architecture.width", "'x'", "256"]),
        ({"architecture": {"name": "resmlp", "depth": 0}}, ["architecture.depth", "found 0", "1.."]),
        ({"architecture": {"name": "resmlp", "residual": 1}}, ["architecture.residual", "found 1", "bool"]),
        ({"runs": ["dfaa"]}, ["settings.demo.runs", "unknown method 'dfaa'", "bp, brsf, credit_bridge, dfa", "'dfa'?"]),
        ({"runs": [], "sweep": None}, ["settings.demo.runs", "settings.demo.sweep", "'methods' and 'penalties'"]),
        ({"sweep": {"methods": ["dfaa"], "penalties": [0]}}, ["settings.demo.sweep", "unknown method 'dfaa'"]),
        ({"sweep": {"methods": ["dfa+frozen"], "penalties": [0]}}, ["sweep.methods.0", "the name of a method"]),
        ({"sweep": {"methods": ["dfa"], "penalties": [-1]}}, ["sweep.penalties.0", "found -1", ">= 0"]),
        ({"sweep": {"methods": ["dfa"], "penalties": [0, 0.0]}}, ["sweep.penalties", "different numbers"]),
        ({"sweep": {"methods": ["dfa"]}}, ["settings.demo.sweep", "missing penalties"]),
        ({"ladder": ["dfaa"]}, ["settings.demo.ladder", "unknown method 'dfaa'"]),
        ({"ladder": ["ep"]}, ["missing 'ep+frozen'", "ep, ep+frozen1, ep+frozen2, ep+frozen3"]),
        ({"runs": ["nowhere:Mine"]}, ["settings.demo.runs", "no file of the module 'nowhere'", "PYTHONPATH"]),
        ({"runs": ["a/b:Mine"]}, ["settings.demo.runs", "unknown method 'a/b:Mine'"]),
        ({"runs": ["dfa+penalty-1"]}, ["penalty '-1'", ">= 0"]),
        ({"runs": ["dfa+penaltynan"]}, ["penalty 'nan'"]),
        ({"runs": ["dfa+penalty1e-2", "dfa+penalty0.01"]}, ["are the same run"]),
        ({"runs": ["dfa+frozen9"]}, ["freezes 9 blocks", "has 4"]),
        ({"runs": ["dfa+pen"]}, ["unknown option 'pen'", "penalty<number>"]),
        ({"runs": ["../../etc/passwd"]}, ["unknown method"]),
        ({"baselines": ["bp+frozen", "fa+frozen"]}, ["missing 'dfa+frozen'", "dfa, dfa+penalty1e-2"]),
        ({"baselines": ["dfa"]}, ["'dfa' is no baseline"]),
        ({"dataset": "cifar"}, ["unknown dataset 'cifar'", "cifar10"]),
        ({"architecture": {"name": "resnet"}}, ["unknown architecture 'resnet'", "resmlp"]),
        ({"architecture": {"name": "resmlp", "heads": 4}}, ["unknown option of resmlp 'heads'", "width"]),
    ],
)
def test_a_mistake_is_named_with_its_place_and_the_valid_values(change, words):
    with pytest.raises(AuditError) as failure:
        read_grid(changed(**change), SCHEMA)
    for word in words:
        assert word in str(failure.value)


def test_names_of_settings_cannot_leave_the_results_folder():
    config = copy.deepcopy(DEMO)
    for name in ("../x", "a/b", "A", "", 1, "é"):
        config["settings"] = {name: DEMO["settings"]["demo"]}
        with pytest.raises(AuditError, match=r"lower-case letters|settings: found the key 1; expected ordinary text"):
            read_grid(config, SCHEMA)


@pytest.mark.parametrize(("kind", "name"), [("figures", "scorecard"), ("figures", "a/b"), ("tables", "../x")])
def test_a_name_that_is_no_file_of_its_own_is_refused(kind, name):
    config = copy.deepcopy(DEMO)
    config[kind][name] = {"kind": "main_audit", "settings": ["demo"], "title": "x"}
    with pytest.raises(AuditError, match=f"{kind}.*(lower-case letters|another name)"):
        read_grid(config, SCHEMA)


def test_an_artefact_must_name_a_setting_that_exists():
    config = copy.deepcopy(DEMO)
    config["figures"]["trajectories"]["settings"] = ["dem"]
    with pytest.raises(AuditError, match=r"unknown setting 'dem'.*Did you mean 'demo'"):
        read_grid(config, SCHEMA)


def test_a_label_must_belong_to_a_run():
    config = copy.deepcopy(DEMO)
    config["labels"]["dffa"] = "DFA"
    with pytest.raises(AuditError, match=r"labels: unknown run or setting 'dffa'.*Did you mean 'dfa'"):
        read_grid(config, SCHEMA)


def test_two_settings_can_have_the_same_kind_of_figure():
    config = copy.deepcopy(DEMO)
    config["figures"]["second"] = {"kind": "trajectories", "settings": ["demo"], "title": "again"}
    assert read_grid(config, SCHEMA).setting("demo")


def test_a_run_or_seed_that_was_not_configured_is_refused():
    setting = read_grid(DEMO, SCHEMA).setting("demo")
    with pytest.raises(AuditError, match=r"unknown run 'dfa\+shallow'"):
        setting.spec("dfa+shallow", 42)
    with pytest.raises(AuditError, match="unknown seed '7'; known: 123, 42, 456"):
        setting.spec("dfa", 7)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([*DEMO["settings"]["demo"], "vary", "ladder", "odd"]), JSON)
def test_any_value_anywhere_gives_a_grid_or_one_message(key, value):
    try:
        read_grid(changed(**{key: value}), SCHEMA)
    except AuditError as error:
        assert str(error).startswith("config: ")


def test_defaults_are_the_same_in_the_schema_and_in_the_code():
    described = SCHEMA["$defs"]["setting"]["properties"]
    code = {field.name: field.default for field in fields(RunSpec)}
    for name in ("epochs", "batch_size", "lr", "weight_decay"):
        assert described[name]["default"] == code[name]
    limits = {name: entry["default"] for name, entry in SCHEMA["properties"]["thresholds"]["properties"].items()}
    assert DiagnosticThresholds(**limits) == DiagnosticThresholds()
    assert set(limits) == {field.name for field in fields(DiagnosticThresholds)}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_registered_options_are_the_class_s_own(name):
    parameters = set(inspect.signature(load("architecture", ARCHITECTURES, name)).parameters)
    assert parameters - {"image_shape", "classes"} == set(ARCHITECTURE_OPTIONS[name])
    assert type(ARCHITECTURE_OPTIONS[name]["depth"]) is int
