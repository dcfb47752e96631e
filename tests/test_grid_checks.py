"""A wrong configuration is answered with one message: place, what was found, what is expected, the
nearest name.
"""

import copy

import pytest

from fa_audit.core.errors import AuditError
from fa_audit.core.registry import find_module
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.kinds import KINDS

SETTING = {
    "dataset": "digits",
    "architecture": {"name": "resmlp", "width": 16, "depth": 4},
    "seeds": [42],
    "runs": ["bp", "dfa"],
    "baselines": ["bp+frozen", "dfa+frozen"],
}
MODEL = {
    "model": "test_models:small",
    "dataset": "digits",
    "blocks": ["0", "2"],
    "reads": "spatial mean",
}
FIGURE = {"settings": ["demo"], "title": "t"}
NO_RUNS = {key: SETTING[key] for key in ("dataset", "architecture", "seeds")}
VARIED = {"vary": {"epochs": [1, 3]}}


def setting(**changes):
    return {"settings": {"demo": SETTING | changes}}


def model(**changes):
    return {"models": {"mine": MODEL | changes}}


def also(**parts):
    return setting() | parts


MISTAKES = [
    # the types of a setting
    (setting(epoch=3), "settings.demo.epoch: unknown key 'epoch'", "Did you mean 'epochs'"),
    (setting(architecture={"name": "resmlp", 3: 4}), "settings.demo.architecture.3: found the key 3; expected text"),
    ({"settings": {"demo": {5: 1}}}, "settings.demo.5: found the key 5; expected text"),
    (setting(epochs="many"), "settings.demo.epochs: found 'many'; expected an integer 0..100000"),
    (setting(lr=float("nan")), "settings.demo.lr: found nan; expected a finite number > 0"),
    (setting(lr=10**400), "settings.demo.lr: found 1000"),
    (setting(lr="1e-3"), "settings.demo.lr", "1.0e-3"),
    (setting(seeds=[42, 42]), "settings.demo.seeds", "different integers"),
    (setting(seeds=[True]), "settings.demo.seeds.0: found True"),
    (setting(runs=[], sweep=None), "settings.demo.runs", "settings.demo.sweep: found None; expected a map"),
    (setting(sweep={"methods": ["a+b"], "penalties": [0]}), "sweep.methods.0: found 'a+b'; expected the name"),
    (setting(sweep={"methods": ["dfa"], "penalties": [0, 0.0]}), "sweep.penalties", "different numbers"),
    ({"settings": {"demo": {}}}, "settings.demo: missing dataset, architecture, seeds; expected a mapping"),
    # names of settings and runs
    (setting(architecture={"name": "resmlp", "depth": 0}), "architecture.depth: found 0; expected an integer 1.."),
    (setting(architecture={"name": "resmlp", "residual": 1}), "architecture.residual: found 1; expected True or False"),
    (setting(architecture={"name": "resnet"}), "unknown architecture 'resnet'", "resmlp"),
    *((setting(architecture={"name": "resmlp", "w2_std": std}), f"w2_std: found {std}; expected a number > 0 with a")
      for std in (0.0, -0.1, 1, True)),
    (setting(architecture={"name": "student_mlp", "w2_std": 0.1}), "unknown option of student_mlp 'w2_std'"),
    (setting(clip=1.0, clip_groups=0.5), "settings.demo: found clip 1.0 and clip_groups 0.5; expected one of them"),
    (setting(clip_groups=-1), "settings.demo.clip_groups: found -1; expected a finite number >= 0"),
    (setting(architecture={"name": "resmlp", "heads": 4}), "unknown option of resmlp 'heads'", "width"),
    (setting(dataset="cifar"), "settings.demo.dataset: unknown dataset 'cifar'", "Did you mean 'cifar10'"),
    (setting(runs=["dfaa"]), "settings.demo.runs.0: unknown method 'dfaa'; known: bp, brsf", "Did you mean 'dfa'?"),
    (setting(ladder=["ep"]), "missing 'ep+frozen'", "ep, ep+frozen1, ep+frozen2, ep+frozen3"),
    (setting(runs=["nowhere:Mine"]), "settings.demo.runs", "No module named 'nowhere'", "PYTHONPATH"),
    (setting(runs=["a/b:Mine"]), "settings.demo.runs.0: unknown method 'a/b:Mine'"),
    (setting(runs=["dfa+penalty-1"]), "penalty '-1'", ">= 0"),
    (setting(runs=["dfa+penalty1e-2", "dfa+penalty0.01"]), "expected a non-empty list of different run names"),
    (setting(runs=["dfa+frozen9"]), "freezes 9 blocks", "has 4"),
    (setting(runs=["dfa+pen"]), "settings.demo.runs.0: run 'dfa+pen': unknown option 'pen'", "penalty<number>"),
    (setting(baselines=["bp+frozen"]), "settings.demo.baselines: missing 'dfa+frozen', the frozen baseline of dfa"),
    (setting(baselines=["dfa"]), "'dfa' is not a baseline"),
    (setting(snapshots=[1, 2, 1]), "settings.demo.snapshots: found [1, 2, 1]; expected a list of different epochs"),
    (setting(epochs=3, snapshots=[1, 3, 4]), "settings.demo.snapshots: found 4; expected at most 3, the last epoch"),
    (setting(epochs=0, snapshots=[0]), "settings.demo.snapshots: found with 0 epochs; expected none"),
    (setting(runs=["dfa+epoch100"]), "demo.runs: 'dfa+epoch100' is not a snapshot; the last epoch is 100", "is 'dfa'"),
    (setting(runs=["dfa+epoch1"]), "missing 'dfa+frozen+epoch1', the frozen baseline of dfa+epoch1"),
    (setting(monitor={"stop_on": []}), "settings.demo.monitor.stop_on: found []; expected a non-empty list"),
    ({"settings": {"demo": NO_RUNS}}, "settings.demo: nothing to audit; expected runs, a sweep or a ladder"),
    # vary
    (setting(vary={"width": [1]}), "settings.demo.vary.width: given a second time outside 'vary'"),
    (setting(vary={"dept": [1, 2]}), "settings.demo.vary: unknown option of resmlp 'dept'", "'depth'?"),
    (setting(vary={"residual": []}), "settings.demo.vary.residual: found []; expected a non-empty list"),
    (setting(vary={"residual": ["x"]}), "vary.residual.0: found 'x'; expected a number, true, false or the"),
    (setting(vary={"residual": [1, True, 1]}), "vary.residual: found [1, True, 1]; expected a non-empty list"),
    (setting(vary={"weight_decay": [1]}), "found the key 'weight_decay'; expected epochs, batch_size, lr, an option"),
    (setting(vary={"lr": [0.0]}), "settings.demo.vary.lr: found 0.0; expected a finite number > 0"),
    (setting(vary={"normalise": [1]}), "settings.demo.vary.normalise: found 1; expected true or false"),
    (setting(validation=1, optimiser="adam"), "validation: found 1; expected a fraction", "expected adamw, or sgd"),
    (setting(vary={}), "settings.demo.vary: found {}; expected a mapping"),
    (setting(vary={"batch_size": [0]}), "settings.demo.vary.batch_size: found 0; expected an integer 1..65536"),
    ({"settings": {"a": SETTING | VARIED, "a_epochs3": SETTING}}, "makes a setting 'a_epochs3', and so does"),
    # sizes
    ({"settings": {"demo": NO_RUNS | {"runs": ["dfa"], "seeds": list(range(15_000))}}},
     "settings: found 60000 runs"),  # with those that it is compared with by default
    (setting(seeds=list(range(30_000))), "settings: found 120000 runs, 120000 of them in 'demo'; expected at"),
    (setting(vary={"heads": list(range(8000)), "dim": list(range(8000))}), "found 256000000 runs"),
    # the rest of a configuration
    ({}, "top level: found {}; expected a mapping with the key 'settings', 'models' or both"),
    ({"settings": {}}, "settings: found {}; expected one or more named settings"),
    (also(monitor={}), "monitor: missing stop_on; expected a mapping with the key 'stop_on'"),
    (also(monitor={"stop_on": ["D3"]}), "monitor.stop_on.0: found 'D3'; expected D1, D2 or D2@1024"),
    (also(labels={"dffa": "DFA"}), "labels: unknown run or setting 'dffa'", "Did you mean 'dfa'"),
    (also(figures={"trajectories": FIGURE | {"settings": ["dem"]}}), "trajectories.settings: unknown setting 'dem'"),
    (also(figures={"trajectories": FIGURE | {"runs": ["dfaa"]}}), "trajectories.runs: unknown run 'dfaa'", "'dfa'?"),
    (also(figures={"trajectories": FIGURE | {"runs": ["bp+frozen"]}}), "unknown run 'bp+frozen'", "bp, dfa"),
    (also(figures={"trajectories": FIGURE | {"runs": []}}), "trajectories.runs: found []; expected a non-empty list"),
    (also(figures={"trajektories": FIGURE}), "figures.trajektories: unknown figure 'trajektories'", "'trajectories'?"),
    (also(figures={"scorecard": FIGURE}), "figures.scorecard: found the key 'scorecard'", "other than scorecard"),
    (also(figures={"a/b": FIGURE}), "figures.a/b: found the key 'a/b'; expected a name of at most 100 lower-case"),
    (
        {"settings": {"a": SETTING | VARIED}, "tables": {"main_audit": {"settings": ["a"], "title": "t"}}},
        "tables.main_audit.settings: found a_epochs1, a_epochs3; a figure or table of this kind shows one",
    ),
    # models
    (model(model="torchvision.models.resnet18"), "models.mine.model", "expected package.module:name", "resnet18."),
    (model(model="torchvision.modells:vgg11"), "models.mine.model: no file of the module 'torchvision.modells'"),
    (model(dataset="digit"), "models.mine.dataset: unknown dataset 'digit'", "Did you mean 'digits'"),
    (model(blocks=[]), "models.mine.blocks: found []; expected a pattern such as encoder.layers.*"),
    (model(blocks=["0", "0"]), "models.mine.blocks", "different dotted names"),
    (model(reads="cls"), "mine.reads: found 'cls'", "token; last token; spatial mean; spatial mean, channels last"),
    (model(image_shape=[3, 32]), "models.mine.image_shape: found [3, 32]; expected [channels, height, width]"),
    (model(batches=11), "models.mine.batches: found 11; expected an integer 1..10"),
    (model(accuracy=61), "models.mine.accuracy: found 61; expected a fraction 0..1"),
    (model(arguments={"a": [float("inf")]}), "models.mine.arguments.a.0: found inf; expected a finite number"),
    (model(arguments={1: 2}), "models.mine.arguments.1: found the key 1; expected the name of an argument, quoted"),
    (model(weigths="x"), "models.mine.weigths: unknown key 'weigths'", "Did you mean 'weights'"),
    ({"models": {"mine": {}}}, "models.mine: missing model, dataset, blocks, reads; expected a mapping"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake[1][:60])
def test_a_mistake_is_named_with_its_place_and_what_is_expected(mistake):
    config, *words = mistake
    with pytest.raises(AuditError) as refused:
        read_grid(config, KINDS)
    assert str(refused.value).startswith("config: ")
    for word in words:
        assert word in str(refused.value)
    assert len(str(refused.value)) < 3000 and all(
        line.isprintable() for line in str(refused.value).splitlines()
    )


@pytest.mark.parametrize("name", ["../x", "a/b", "A", "", 1, "é", "a\n"])
def test_a_name_that_is_no_plain_file_name_is_refused(name):
    for config in ({"settings": {name: SETTING}}, {"models": {name: MODEL}}):
        with pytest.raises(AuditError, match=r"found the key .*lower-case letters"):
            read_grid(config)


def test_many_problems_are_listed_up_to_five():
    problem = (
        r"config: (settings\.demo\.seeds\.\d+: found -?\d+;[^\n]*\n\s*){5}\.\.\. and 44 more\Z"
    )
    with pytest.raises(AuditError, match=problem):
        read_grid(setting(seeds=[-n for n in range(1, 50)]))


def test_what_is_right_stays_right():
    config = setting(lr=1, weight_decay=0) | {
        "figures": {"second": FIGURE | {"kind": "trajectories"}}
    }
    before = copy.deepcopy(config)
    assert read_grid(config | {"data_root": "~/data"}, KINDS).setting("demo") and config == before
    assert not read_grid(model()).settings
    variants = setting(runs=["dfa+penalty1e-2", "dfa+random_targets"]) | {"labels": {"dfa": "DFA"}}
    assert read_grid(variants, KINDS).setting(
        "demo"
    )  # a label by the method, which never runs alone
    assert find_module("名" * 90, ["."]) is None  # too long for a file name
