"""Configurations that no JSON file could hold, or that take longer to check than to write."""

import copy
import datetime
import time
from pathlib import Path

import pytest
import yaml

from fa_audit.core.errors import AuditError, unknown
from fa_audit.core.registry import find_module
from fa_audit.experiments.grid import read_grid

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = yaml.safe_load((ROOT / "schemas/config.schema.yaml").read_text())
SETTING = {
    "dataset": "digits",
    "architecture": {"name": "resmlp"},
    "epochs": 2,
    "seeds": [1],
    "runs": ["dfa"],
}
MODEL = {"model": "torchvision.models:resnet18", "dataset": "digits", "blocks": ["a"], "reads": "cls token"}
LONG, LONGER = 10**400, 1 << 16000  # beyond a float; beyond what Python writes in digits


def config(**values):
    return {"settings": {"a": SETTING | values}, "models": {"m": MODEL}}


def with_arguments(value):
    return config() | {"models": {"m": MODEL | {"arguments": {"x": [value]}}}}


ODD = [
    (config(lr=LONG), "settings.a.lr: found an integer of 1329 bits; expected at most 1000 bits"),
    (config(weight_decay=-LONG), "settings.a.weight_decay: found an integer of 1329 bits"),
    (
        config() | {"thresholds": {"growth": LONG}, "monitor": {"stop_on": ["D1"]}},
        "thresholds.growth: found an integer",
    ),
    (config(seeds=[LONGER]), "settings.a.seeds.0: found an integer of 16001 bits"),
    (config(epochs={"a": LONGER}), "settings.a.epochs.a: found an integer of 16001 bits"),
    (config(**{"dataset": {LONGER: 1}}), "settings.a.dataset: found the key an integer of 16001 bits"),
    (config(lr=1j), "settings.a.lr: found 1j; expected a number, text, true, false"),
    (config(seeds=(1, 2)), "settings.a.seeds: found (1, 2); expected a number"),
    (with_arguments(datetime.date(2001, 1, 1)), "models.m.arguments.x.0: found datetime.date(2001, 1, 1); expected"),
    (with_arguments(b"bytes"), "models.m.arguments.x.0: found b'bytes'; expected"),
    (with_arguments({"a"}), "models.m.arguments.x.0: found {'a'}; expected"),
    (with_arguments({1: 2}), "models.m.arguments.x.0: found the key 1; expected ordinary text"),
    (config() | {"data_root": "a\0b"}, r"data_root: found 'a\x00b'; expected a text without the characters NUL"),
    (config() | {"labels": {"dfa": "\ud800"}}, r"labels.dfa: found '\ud800'; expected a text without"),
    (config() | {"labels": {"\ud800": "a"}}, r"labels: found the key '\ud800'; expected ordinary text"),
    (
        config() | {"data_root": "~nobody-of-this-name/x"},
        "data_root: found '~nobody-of-this-name/x', and nobody of that",
    ),
    (config() | {"models": {"m": MODEL | {"model": "x" * 300 + ":y"}}}, "models.m.model: found 'xxx"),
    (config() | {"models": {"m": MODEL | {"model": "名" * 90 + ":X"}}}, "models.m.model: no file of the module"),
    (config(runs=["名" * 90 + ":X"]), "no file of the module"),
]


@pytest.mark.parametrize(("odd", "words"), ODD, ids=range(len(ODD)))
def test_what_is_no_json_is_named_with_its_place(odd, words):
    with pytest.raises(AuditError) as refused:
        read_grid(odd, SCHEMA)
    assert str(refused.value).startswith("config: ") and words in str(refused.value)
    assert len(str(refused.value)) < 700 and all(line.isprintable() for line in str(refused.value).splitlines())


def test_the_configuration_itself_is_not_odd():
    assert list(read_grid(config(lr=1, weight_decay=0) | {"data_root": "~/data"}, SCHEMA).cells("runs"))


def test_a_name_that_is_too_long_for_a_file_is_no_module(tmp_path):
    assert find_module("名" * 90, [tmp_path]) is None


# --- sizes ---------------------------------------------------------------------------------------------------------


def nothing_of_many():
    body = SETTING | {"vary": {"width": list(range(1, 8000)), "depth": list(range(1, 8000))}}
    return {"settings": {"a": {key: value for key, value in body.items() if key != "runs"}}}


def figures_of_settings():
    figure = {"kind": "trajectories", "settings": ["b", "c"], "title": "t"}
    body = SETTING | {"vary": {"width": list(range(1, 3000))}}
    return {"settings": {"a": body}, "figures": {f"f{n}": copy.copy(figure) for n in range(9000)}}


LARGE = {
    "nothing to do, often": (nothing_of_many, "settings: found 63984001 runs"),
    "numbers and texts": (lambda: config(seeds=[n if n % 2 else str(n) for n in range(50000)]), "settings.a.seeds.0"),
    "figures of settings": (figures_of_settings, "figures.f0.settings: unknown setting 'b'"),
    "unknown methods": (lambda: config(runs=[f"dfa{n}" for n in range(20000)]), "unknown method 'dfa0'"),
    "unknown labels": (lambda: config() | {"labels": {f"l{n}": "x" for n in range(20000)}}, "unknown run or setting"),
}


@pytest.mark.parametrize("what", LARGE)
def test_a_large_configuration_is_refused_within_seconds(what):
    make, words = LARGE[what]
    odd = make()
    start = time.process_time()
    with pytest.raises(AuditError) as refused:
        read_grid(odd, SCHEMA)
    assert time.process_time() - start < 15 and words in str(refused.value)
    assert len(str(refused.value)) < 3000


@pytest.mark.parametrize(
    ("values", "words"), [([1, 1.0], "different"), ([[1], [1]], "different"), ([1, True], "seeds.1: found True")]
)
def test_equal_items_are_told_as_json_schema_has_it(values, words):
    with pytest.raises(AuditError, match=words) as refused:
        read_grid(config(seeds=values), SCHEMA)
    assert ("found [1, True]" in str(refused.value)) is False


def test_an_unknown_name_is_answered_with_the_nearest_and_the_first_of_the_others():
    names = [f"run{n:03}" for n in range(500)]
    said = str(unknown("run", "run0777", names))
    assert said.endswith("run018, run019 and 480 more. Did you mean 'run077'?") and "known: run000, run001" in said
    assert str(unknown("run", "x", names[:20])).endswith("run018, run019.")
