"""A wrong configuration is answered with one message that names the place of every mistake."""

import copy

import pytest

from fa_audit.core.errors import AuditError
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.artefacts import KINDS

NETWORK = {"name": "resmlp", "width": 16, "depth": 4}
NO_RUNS = {"dataset": "digits", "architecture": NETWORK, "seeds": [42]}
SETTING = NO_RUNS | {"runs": ["bp", "dfa"], "baselines": ["bp+frozen", "dfa+frozen"]}
MODEL = {"model": "test_models:small", "dataset": "digits", "blocks": ["0"], "reads": "cls token"}
VARIED = SETTING | {"vary": {"epochs": [1, 3]}}
OF_SETTINGS = [  # a change of the setting, the place of the mistake in it, a word of the message
    ({"epoch": 3}, "epoch", "3"),
    ({"architecture": NETWORK | {"depth": 0}}, "architecture", "depth"),
    ({"architecture": NETWORK | {"w2_std": 0.0}}, "architecture", "0.0"),
    ({"architecture": NETWORK | {"heads": 4}}, "architecture", "'heads'"),
    ({"architecture": {"name": "resnet"}}, "architecture", "'resnet'"),
    ({"lr": "1e-3"}, "lr", "'1e-3'"),
    ({"seeds": [42, 42]}, "seeds", "different"),
    ({"dataset": "cifar"}, "dataset", "'cifar10'"),
    ({"runs": ["dfaa"]}, "runs.0", "'dfaa'"),
    ({"runs": ["dfa+frozen9"]}, "", "dfa+frozen9"),
    ({"runs": ["dfa+frozen4"]}, "", "'+frozen'"),
    ({"ladder": ["ep"]}, "", "'ep+frozen'"),
    ({"baselines": ["bp+frozen"]}, "", "'dfa+frozen'"),
    ({"epochs": 3, "snapshots": [1, 3, 4]}, "", "+epoch4"),
    ({"vary": {"dept": [1, 2]}}, "", "'dept'"),
    ({"vary": {"epochs": list(range(8000)), "batch_size": list(range(1, 8000))}}, "", "50000"),
]  # fmt: skip
OF_MODELS = [
    ({"model": "torchvision.models.resnet18"}, "model", "resnet18"),
    ({"model": "torchvision.modells:vgg11"}, "model", "torchvision.modells"),
    ({"arguments": {"a": [float("inf")]}}, "arguments.a.0", "inf"),
]


def demo(**more):
    return {"settings": {"demo": SETTING}} | more


def figure(name="trajectories", **changes):
    return demo(figures={name: {"settings": ["demo"], "title": "t"} | changes})


MISTAKES = [
    *(({"settings": {"demo": SETTING | change}}, f"settings.demo.{place}", word)
      for change, place, word in OF_SETTINGS),
    *(({"models": {"mine": MODEL | change}}, f"models.mine.{place}", word)
      for change, place, word in OF_MODELS),
    ({"settings": {"demo": NO_RUNS}}, "settings.demo", "nothing"),
    ({"settings": {"a": VARIED, "a_epochs3": SETTING}}, "settings.a_epochs3", "'a_epochs3'"),
    ({}, "top level", "settings"),
    (demo(monitor={"stop_on": ["D3"]}), "monitor.stop_on.0", "'D3'"),
    (demo(labels={"dffa": "DFA"}), "labels", "'dffa'"),
    (figure(settings=["dem"]), "figures.trajectories", "'dem'"),
    (figure(kind=""), "figures.trajectories.kind", "''"),
    (figure(runs=["bp+frozen"]), "figures.trajectories", "'bp+frozen'"),
    (figure("trajektories"), "figures.trajektories", "'trajectories'"),
    ({"settings": {"a": VARIED}, "tables": {"main_audit": {"settings": ["a"], "title": "t"}}},
     "tables.main_audit", "a_epochs1, a_epochs3"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "place", "word"), MISTAKES, ids=[f"{m[1]} {m[2]}" for m in MISTAKES]
)
def test_a_mistake_is_named_with_its_place_and_what_was_found(config, place, word):
    with pytest.raises(AuditError) as refused:
        read_grid(config, KINDS)
    (line, *_) = str(refused.value).splitlines()
    assert line.startswith(f"config: {place.strip('.')}: ") and word in line
    assert len(line) < 3000 and line.isprintable()


@pytest.mark.parametrize("name", ["../x", "A", "", 1, "é", "a\n"])
@pytest.mark.parametrize(("section", "entry"), [("settings", SETTING), ("models", MODEL)])
def test_a_name_that_is_no_plain_file_name_is_refused(name, section, entry):
    with pytest.raises(AuditError, match=f"^config: {section}"):
        read_grid({section: {name: entry}})


def test_many_problems_are_listed_up_to_five():
    with pytest.raises(AuditError) as refused:
        read_grid({"settings": {"demo": SETTING | {"seeds": [-n for n in range(1, 50)]}}})
    *first, rest = str(refused.value).splitlines()
    assert len(first) == 5 and "44 more" in rest


def test_what_is_right_stays_right():
    second = {"kind": "trajectories", "settings": ["demo"], "title": "t"}
    # A label by the method, which never runs alone.
    config = demo(data_root="~/data", figures={"second": second}, labels={"dfa": "DFA"})
    before = copy.deepcopy(config)
    assert read_grid(config, KINDS).setting("demo") and config == before
    assert not read_grid({"models": {"mine": MODEL}}).settings
