"""Run names and specifications: what is written is what is read."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_audit.core.errors import AuditError
from fa_audit.experiments.spec import DEPARTURES, Run, RunSpec, parse_run, short_number

methods = st.from_regex(r"[a-z][a-z_]{0,11}", fullmatch=True)
penalties = st.one_of(
    st.just(0.0), st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
)
rates = st.none() | st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
flags = {
    "method": methods,
    "lr": rates,
    "unnormalised": st.booleans(),
    "random_targets": st.booleans(),
}
flags |= {"snapshot": st.none() | st.integers(0, 999999)}
deep_runs = st.builds(Run, penalty=penalties, frozen=st.integers(-1, 10**6), **flags)
runs = st.one_of(deep_runs, st.builds(Run, shallow=st.just(True), **flags))


@given(runs)
def test_a_run_is_read_back_from_its_name(run):
    assert parse_run(str(run)) == run


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("dfa+penalty0.01", "dfa+penalty1e-2"),
        ("dfa+penalty.025", "dfa+penalty2.5e-2"),
        ("dfa+penalty0", "dfa"),
        ("dfa+frozen+penalty1e-2", "dfa+penalty1e-2+frozen"),
        ("bp+random_targets+shallow", "bp+shallow+random_targets"),
        ("dfa+epoch0+frozen", "dfa+frozen+epoch0"),
        ("dfa+shallow+unnormalised+lr.003", "dfa+lr3e-3+unnormalised+shallow"),
    ],
)
def test_spellings_have_one_canonical_form(text, canonical):
    assert str(parse_run(text)) == canonical


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("dfa+shallow+frozen", "'shallow'"),
        ("dfa+penalty-1", "'-1'"),
        ("dfa+penalty1e999", "'1e999'"),
        ("dfa+lr0", "'0'"),
        ("dfa+lr1e-2+lr1e-3", "'lr1e-3'"),
        ("dfa+unnormalized", "'unnormalised'"),
        ("dfa+epoch01", "'epoch01'"),
        ("dfa+", "''"),
    ],
)
def test_contradictions_are_refused(text, word):
    with pytest.raises(AuditError, match=r"\Arun '") as caught:
        parse_run(text)
    assert word in str(caught.value)


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_short_numbers_lose_nothing(value):
    assert float(short_number(value)) == value and short_number(1234.0) == "1.234e3"


OWN = "dfa+lr3e-3+unnormalised"
BASELINES = {
    "own": "dfa+lr3e-3+unnormalised+frozen",
    "bp": "bp+lr3e-3+unnormalised+frozen",
    "shallow": "bp+lr3e-3+unnormalised+shallow",
}


def test_baselines_have_the_run_s_own_learning_rate_and_normalisation():
    runs = parse_run("dfa+penalty1e-2+unnormalised+lr.003+random_targets").baselines
    assert {role: str(run) for role, run in runs.items()} == BASELINES
    common = {"depth": 2, "dataset": "digits", "architecture": "resmlp", "lr": 1e-2}
    specs = [run.spec(**common) for run in (parse_run(OWN), *runs.values())]
    assert {(spec.lr, spec.normalise) for spec in specs} == {(3e-3, False)}
    plain = parse_run("dfa").spec(**common)
    assert (plain.lr, plain.normalise) == (1e-2, True)


SPEC = RunSpec(
    dataset="digits",
    architecture="resmlp",
    architecture_options=(("depth", 4), ("width", 8)),
    method="dfa",
)
CHANGES = {
    "dataset": "cifar10",
    "architecture": "vit_mini",
    "architecture_options": (("depth", 4), ("width", 9)),
    "method": "fa",
    "penalty": 0.1,
    "frozen_blocks": 1,
    "shallow": True,
    "random_targets": True,
    "epochs": 99,
    "batch_size": 127,
    "lr": 2e-3,
    "weight_decay": 0.02,
    "seed": 43,
    "optimiser": "sgd",
    "clip": 1.0,
    "clip_groups": 1.0,
    "normalise": False,
    "rms_floor": 1e-9,
    "frozen_embedding": True,
    "validation": 0.1,
    "snapshot": 3,
    "monitor": (("D1", 50.0),),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_field_survives_json_and_changes_the_digest_and_only_departures_may_be_missing(name):
    spec = dataclasses.replace(SPEC, **{name: CHANGES[name]})
    again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict(), allow_nan=False)))
    assert (
        again == spec and hash(again) == hash(spec) and again.digest == spec.digest != SPEC.digest
    )
    rest = {key: value for key, value in spec.to_dict().items() if key != name}
    if name in DEPARTURES:
        assert RunSpec.from_dict(rest) == SPEC and rest == SPEC.to_dict()
        return
    with pytest.raises(AuditError, match=f"run specification: {name}: "):
        RunSpec.from_dict(rest)


def test_the_digest_is_stable_and_depends_on_every_field():
    assert SPEC.digest == "1033c7bd"
    assert set(CHANGES) == {field.name for field in dataclasses.fields(RunSpec)}


@pytest.mark.parametrize(
    ("field", "value"), [("penalty", 0), ("penalty", -0.0), ("lr", 1), ("clip", 1)]
)
def test_equal_specifications_have_equal_digests(field, value):
    """``penalty: 0`` and ``penalty: 0.0`` in a configuration are the same run."""
    one, other = (
        dataclasses.replace(SPEC, **{field: spelled}) for spelled in (value, abs(float(value)))
    )
    assert one == other and one.digest == other.digest
    assert dataclasses.replace(SPEC, snapshot=100) == SPEC  # the last epoch's is the run itself


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"colour": "red"}, "colour"),
        ({"epochs": 100001}, "epochs"),
        ({"clip": 1.0, "clip_groups": 1.0}, "found clip 1.0 and clip_groups 1.0"),
        ({"snapshot": 101}, "snapshot"),
        ({"optimiser": "adam"}, "optimiser"),
        ({"monitor": {"D1": "x"}}, "monitor.D1"),
    ],
)
def test_a_wrong_field_is_named(change, place):
    with pytest.raises(AuditError, match=rf"\Arun specification: {place}\b"):
        RunSpec.from_dict(SPEC.to_dict() | change)
