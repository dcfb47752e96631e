"""The published numbers: what the file may say, which audits it names, and where an audit has each quantity."""

import json

import pytest
import yaml
from projects import EXPERIMENT, ROOT

from fa_audit.audit.run_audit import audit
from fa_audit.core.errors import AuditError
from fa_audit.experiments.grid import read_grid
from fa_audit.experiments.published import QUANTITIES, quantity_of, read_published
from fa_audit.training.loop import train

SHIPPED = yaml.safe_load((ROOT / "reference/published.yaml").read_text())
COMMON = {"setting": "tiny", "n": 3, "source": "a paper"}
VALUE = COMMON | {"quantity": "accuracy", "run": "bp", "kind": "value", "value": 0.6, "deviation": 0.01}
VALUE |= {"tolerance": 0.02}
MAGNITUDE = COMMON | {"quantity": "grad_norm", "run": "dfa", "layer": 2, "kind": "magnitude", "value": 1e-9}
MAGNITUDE |= {"deviation": None, "seeds": [42]}
VERDICT = COMMON | {"quantity": "scale_flag", "run": "dfa", "kind": "verdict", "value": True}
ORDER = COMMON | {"quantity": "accuracy", "run": ["bp", "dfa"], "kind": "order"}
FILE = {"settings": {"tiny": EXPERIMENT}, "entries": [VALUE, MAGNITUDE, VERDICT, ORDER]}


def shipped(path):
    return read_grid(yaml.safe_load((ROOT / path).read_text()))


def grid_of(**changes):
    setting = EXPERIMENT | {"runs": ["bp", "dfa"], "seeds": [42, 7, 123]} | changes
    return read_grid({"settings": {"tiny": setting}})


def test_every_published_number_belongs_to_a_run_of_the_paper_s_grid_and_to_none_of_smaller_networks():
    published = read_published(SHIPPED)
    keys = {key for entry in published.entries for key in entry.run_keys()}
    assert set(published.run_keys_in(shipped("config.yaml"))) == keys
    assert all(published.run_keys_in(shipped(f"configs/{name}.yaml")) == [] for name in ("ci", "demo"))
    assert all("arXiv 2606.21126" in entry.source for entry in published.entries)


def test_audits_to_compare_with_have_the_run_the_seed_and_the_specification_of_an_entry():
    published = read_published(FILE)
    expected = [("tiny", run, seed) for run in ("bp", "dfa") for seed in (42, 123)]
    assert sorted(published.run_keys_in(grid_of())) == sorted(expected)
    assert published.run_keys_in(grid_of(runs=["dfa"])) == [("tiny", "dfa", 42), ("tiny", "dfa", 123)]
    for change in ({"epochs": 3}, {"dataset": "cifar10"}, {"architecture": EXPERIMENT["architecture"] | {"width": 9}}):
        assert published.run_keys_in(grid_of(**change)) == []
    monitored = {"settings": {"tiny": EXPERIMENT | {"runs": ["dfa"], "seeds": [42]}}, "monitor": {"stop_on": ["D1"]}}
    assert published.run_keys_in(read_grid(monitored)) == [("tiny", "dfa", 42)]


def changed(position, **values):
    return FILE | {"entries": [entry | values if i == position else entry for i, entry in enumerate(FILE["entries"])]}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (changed(0, tolerence=0.02), "entries.0: unknown key 'tolerence'; .* Did you mean 'tolerance'"),
        (changed(0, quantity="acuracy"), "entries.0: unknown quantity 'acuracy'; .* Did you mean 'accuracy'"),
        (changed(0, setting="tny"), "entries.0: unknown setting 'tny'; known: tiny"),
        (changed(0, run="bp+penalty0.01"), "found run 'bp.penalty0.01'; expected its usual spelling, bp.penalty1e-2"),
        (changed(0, layer=1), "entries.0: accuracy has no layer"),
        (changed(0, quantity="scale_flag"), "entries.0: scale_flag is a verdict; found kind value"),
        (changed(1, layer=None), "entries.1: grad_norm needs a layer"),
        (changed(1, value=0), "entries.1.value: found 0; expected a number other than 0"),
        (changed(3, run="bp"), "entries.3.run: found 'bp'; expected a list of two or more"),
        (FILE | {"entries": [VALUE, VALUE]}, "entries.1: the same as entries.0; keep one of them"),
        (FILE | {"settings": FILE["settings"] | {"more": EXPERIMENT}}, "settings.more: no entry belongs to it"),
        (FILE | {"settings": {"tiny": EXPERIMENT | {"seeds": [1]}}}, "settings.tiny: .*; expected .* without runs"),
    ],
)
def test_a_wrong_file_is_answered_with_one_line(raw, words):
    with pytest.raises(AuditError, match=rf"\Areference/published\.yaml: [^\n]*{words}[^\n]*\Z"):
        read_published(raw)


def test_every_quantity_is_where_an_audit_has_it_and_none_where_it_has_none(make_spec, dataset):
    trained = train(make_spec("dfa"), dataset)
    baselines = {"own_frozen": ("dfa+frozen", 0.45), "bp_frozen_acc": 0.4}
    report = audit(trained.learner, dataset, trained.accuracy, **baselines, trajectory=trained.history)
    found = json.loads(json.dumps(report.to_dict() | {"baseline_runs": {"own": {"accuracy": 0.45}}}))
    layer, checks = report.evidence.layers[1], report.checks
    expected = {
        "accuracy": trained.accuracy,
        "own_frozen_accuracy": 0.45,
        "hidden_norm_last": report.residual_norms[-1],
        "grad_norm_last": report.bp_grad_norms[-1],
        "grad_norm": layer.grad_norm,
        "max_growth": checks.scale.value,
        "stability": checks.stability.value,
        "clamped_cosine": report.credit[1]["clamped_cosine"].value,
        **{f"deep_{name}": report.deep[name].value for name in ("clamped_cosine", "rho", "rho_bp", "nudging")},
        "fresh_b_mean": report.deep["fresh_b_null"].value,
        "scale_flag": checks.scale.fires,
        "reference_flag": checks.reference.fires,
        "four_check_verdict": report.verdict,
        **report.first_flags,
    }
    assert {name: quantity_of(found, name, 1) for name in QUANTITIES} == expected
    assert len(set(expected.values()) - {None, True, False}) >= 12  # nothing is found where something else stands
    assert quantity_of(found | {"first_flags": {"first_scale_flag": 3}}, "first_scale_flag") == 3
    assert quantity_of(found | {"baseline_runs": {}}, "own_frozen_accuracy") is None
    assert quantity_of(found, "grad_norm", 7) is None and quantity_of(found, "grad_norm", 3) is not None
