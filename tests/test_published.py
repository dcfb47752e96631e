"""The published numbers: what the file may say, and which audits it names."""

import pytest
import yaml
from projects import EXPERIMENT, ROOT, read_published

from fa_audit.core.errors import AuditError
from fa_audit.experiments.published import identity
from fa_audit.experiments.read_grid import read_grid

SHIPPED = yaml.safe_load((ROOT / "reference/published.yaml").read_text())
COMMON = {"setting": "tiny", "n": 3, "source": "a paper"}
VALUE = COMMON | {
    "quantity": "accuracy",
    "run": "bp",
    "kind": "value",
    "value": 0.6,
    "deviation": 0.01,
}
VALUE |= {"tolerance": 0.02, "values": {42: 0.61, 123: 0.59}, "minus": "bp+frozen"}
MAGNITUDE = COMMON | {
    "quantity": "grad_norm",
    "run": "dfa",
    "layer": 2,
    "kind": "magnitude",
    "value": 1e-9,
}
MAGNITUDE |= {"deviation": None, "seeds": [42], "claim": "tiny_gradients"}
VERDICT = COMMON | {"quantity": "scale_fires", "run": "dfa", "kind": "verdict", "value": True}
ORDER = COMMON | {"quantity": "accuracy", "run": ["bp", "dfa"], "kind": "order"}
BOUND = COMMON | {
    "quantity": "growth",
    "run": "dfa",
    "epoch": 2,
    "layer": 1,
    "kind": "bound",
    "above": 0.1,
}
FILE = {
    "claims": {"tiny_gradients": "Gradients are tiny"},
    "scripts": {"new": {}, "old": {"clip_groups": 1.0}},
    "settings": {"tiny": EXPERIMENT | {"script": "new", "reason": "its date"}},
    "entries": [VALUE, MAGNITUDE, VERDICT, ORDER, BOUND],
}


def shipped(path):
    return read_grid(yaml.safe_load((ROOT / path).read_text()))


def grid_of(**changes):
    setting = EXPERIMENT | {"runs": ["bp", "dfa"], "seeds": [42, 7, 123]} | changes
    return read_grid({"settings": {"tiny": setting}})


def test_every_published_number_belongs_to_a_run_of_the_paper_s_grid_and_to_none_of_smaller_networks():
    published = read_published(SHIPPED)
    grid = shipped("config.yaml")
    ours = {(identity(grid.spec(key).to_dict()), key.seed) for key in published.run_keys_in(grid)}
    assert {(identity(published.spec(key)), key.seed) for key in published.run_keys()} <= ours
    assert all(
        published.run_keys_in(shipped(f"configs/{name}.yaml")) == [] for name in ("ci", "demo")
    )


def test_audits_to_compare_with_have_the_run_the_seed_and_the_specification_of_an_entry():
    published = read_published(FILE)
    keys = [("tiny", run, seed) for run in ("bp", "dfa") for seed in (42, 123)]
    for script in ({}, {"clip_groups": 1.0}):
        assert sorted(published.run_keys_in(grid_of(**script))) == keys
    assert published.run_keys_in(grid_of(runs=["dfa"])) == keys[2:]
    subtracted = grid_of(runs=["bp", "bp+frozen"])
    assert ("tiny", "bp+frozen", 42) in published.run_keys_in(subtracted)
    assert published.run_keys_in(grid_of(epochs=3)) == []
    one = EXPERIMENT | {"runs": ["dfa"], "seeds": [42]}
    other_name = read_grid({"settings": {"other": one}})
    assert published.run_keys_in(other_name) == [("other", "dfa", 42)]
    monitored = read_grid({"settings": {"tiny": one}, "monitor": {"stop_on": ["D1"]}})
    assert published.run_keys_in(monitored) == [("tiny", "dfa", 42)]


def changed(position, **values):
    entries = [*FILE["entries"]]
    entries[position] = entries[position] | values
    return FILE | {"entries": entries}


def with_setting(**keys):
    return FILE | {"settings": {"tiny": FILE["settings"]["tiny"] | keys}}


@pytest.mark.parametrize(
    ("raw", "place", "word"),
    [
        (changed(0, tolerence=0.02), "entries.0.tolerence", ""),
        (changed(0, quantity="acuracy"), "entries.0", "accuracy"),
        (changed(0, setting="tny"), "entries.0", "tiny"),
        (changed(0, claim="tny"), "entries.0", "tiny_gradients"),
        (changed(1, layer=None), "entries.1", "a run"),
        (changed(1, kind="value"), "entries.1", "tolerance"),
        (changed(1, value="1e-9"), "entries.1", "'1e-9'"),
        (changed(2, quantity="accuracy"), "entries.2", "accuracy"),
        (changed(4, epoch=0), "entries.4.epoch", "0"),
        (changed(1, layer=3), "entries.1", "at most 2"),
        (changed(1, run="dfa+shallow", layer=1), "entries.1", "at most 0"),
        (changed(4, layer=2), "entries.4", "at most 1"),
        (changed(4, epoch=3), "entries.4", "at most 2"),
        (changed(4, minus="dfa+epoch1"), "entries.4", "at most 1, the last of 'dfa+epoch1'"),
        (changed(1, run=["dfa", "bp"]), "entries.1", "one run"),
        (changed(3, run="bp"), "entries.3", "two runs"),
        (changed(4, below=0.2), "entries.4", "above or below"),
        (FILE | {"entries": [*FILE["entries"], VALUE | {"note": "n"}]}, "entries.5", "entries.0"),
        (FILE | {"scripts": {"old": {}}}, "script", "'new'"),
        (with_setting(seeds=[7]), "settings.tiny", "seeds"),
        (with_setting(vary={"lr": [0.1]}), "settings.tiny", "vary"),
        (with_setting(clip=1.0), "script old: settings.tiny", "clip_groups"),
    ],
)
def test_a_wrong_file_is_answered_with_its_place(raw, place, word):
    with pytest.raises(AuditError) as error:
        read_published(raw)
    message = str(error.value)
    assert message.startswith("reference/published.yaml: ") and place in message and word in message


def test_a_setting_s_own_options_go_before_its_script_s_and_a_setting_without_entries_is_allowed():
    tiny = FILE["settings"]["tiny"]
    shared = {"scripts": {"new": {"lr": 0.1, "clip": 2.0}}}
    published = read_published(
        FILE | shared | {"settings": {"tiny": tiny | {"lr": 0.2}, "other": tiny}}
    )
    spec = published.spec(published.run_keys()[0])
    assert (spec["lr"], spec["clip"]) == (0.2, 2.0)


def test_entries_that_differ_in_any_identifying_field_stand_side_by_side():
    for other in ({"run": "dfa"}, {"minus": "dfa"}, {"quantity": "test_accuracy", "epoch": 1}):
        entries = [*FILE["entries"], VALUE | other | {"values": {}}]
        assert len(read_published(FILE | {"entries": entries}).entries) == 6
