"""Runs that end early: which checks fire at which epoch, what stops a training, and what an audit makes of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_audit.audit.run_audit import audit
from fa_audit.cli import main
from fa_audit.core.files import sha256_of
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.data.dataset import save_dataset
from fa_audit.training.checkpoint import Resume
from fa_audit.training.loop import read_trajectory, train, trajectory_csv
from fa_audit.training.monitor import MONITORS, first_flags, hopeless, reference_fires, scale_fires
from fa_audit.training.run_files import train_run

LIMITS = (("D1", 50.0), ("D2", 1e-7))
EAGER = (("D1", 1e-9), ("D2", 1e9))  # fires at once


def epoch(number, growths, grad_norm):
    """The rows of one epoch: one growth per block, and the gradient norm of the last state (1 for the others)."""
    rows = [{"epoch": number, "layer": i, "growth": g, "grad_norm": 1.0} for i, g in enumerate(growths)]
    return [*rows, {"epoch": number, "layer": len(growths), "growth": None, "grad_norm": grad_norm}]


@pytest.mark.parametrize(
    ("growths", "grad_norm", "fired"),
    [
        ([1.0, 51.0], 1e-8, {"D1", "D2"}),
        ([51.0, 1.0], 1e-6, {"D1"}),
        ([50.0, 50.0], 1e-8, {"D2"}),
        ([50.0], 1e-7, set()),  # limits themselves do not fire
        ([float("nan"), float("inf")], float("nan"), {"D1"}),
        ([], 1e-8, {"D2"}),  # no blocks
    ],
)
def test_the_checks_of_one_epoch(growths, grad_norm, fired):
    states = epoch(3, growths, grad_norm)
    assert {check for check, limit in LIMITS if MONITORS[check](states, limit)} == fired
    assert hopeless(LIMITS, states) == (fired == {"D1", "D2"})
    assert [hopeless([pair], states) for pair in LIMITS] == [check in fired for check in ("D1", "D2")]
    assert not hopeless((), states) and not hopeless(LIMITS, [])


def test_only_the_last_epoch_counts_and_the_order_of_rows_does_not():
    bad, good = epoch(1, [99.0], 1e-9), epoch(2, [1.0], 1e-3)
    assert hopeless(LIMITS, bad) and not hopeless(LIMITS, [*bad, *good])
    assert hopeless(LIMITS, [*reversed(epoch(2, [99.0], 1e-9)), *epoch(1, [1.0], 1.0)])


values = st.floats(0, 1e3) | st.floats(1e-12, 1e-3)


@given(st.lists(st.tuples(st.lists(values, min_size=2, max_size=2), values), min_size=1, max_size=6))
def test_first_flags_are_the_first_epochs_that_fire(history):
    rows = [row for number, (growths, norm) in enumerate(history, 1) for row in epoch(number, growths, norm)]
    scale = [number for number, (growths, _) in enumerate(history, 1) if max(growths) > 50]
    collapse = [number for number, (_, norm) in enumerate(history, 1) if norm < 1e-7]
    found = first_flags(rows[::-1], DiagnosticThresholds())
    assert found == {
        "first_scale_flag": min(scale, default=None),
        "first_reference_flag": min(collapse, default=None),
    }
    assert scale_fires(rows[-3:], 50) == (len(history) in scale)
    assert reference_fires(rows[-3:], 1e-7) == (len(history) in collapse)


def test_a_monitor_ends_the_training_after_the_first_epoch_that_fires(dataset, make_spec):
    steps = {"epochs": 4, "lr": 2e-2, "batch_size": 2}
    whole = train(make_spec("dfa", **steps), dataset)
    growths = [max(r["growth"] for r in whole.history if r["epoch"] == n and r["growth"]) for n in range(1, 5)]
    assert max(growths[:2]) < growths[2]
    stopped = train(make_spec("dfa", **steps, monitor=(("D1", max(growths[:2])),)), dataset)
    assert stopped.stopped_after == 3 and whole.stopped_after is None
    assert stopped.history == [row for row in whole.history if row["epoch"] <= 3]  # the same steps, then none
    assert stopped.accuracy == stopped.history[-1]["test_accuracy"]
    assert train(make_spec("dfa", epochs=2, monitor=(("D1", 1e9),)), dataset).stopped_after is None
    assert train(make_spec("dfa", epochs=1, monitor=EAGER), dataset).stopped_after is None  # it had ended anyway


def test_a_stopped_training_that_lost_its_results_stops_at_the_same_epoch(dataset, make_spec, tmp_path):
    spec = make_spec("dfa", epochs=4, monitor=EAGER)
    first = train(spec, dataset, resume=Resume(tmp_path / "resume", "same"))
    again = train(spec, dataset, resume=Resume(tmp_path / "resume", "same"))
    assert first.stopped_after == again.stopped_after == 1 and first.history == again.history


def test_the_sidecar_records_it_and_the_audit_compares_with_no_baseline(dataset, make_spec, tmp_path, capsys):
    spec = make_spec("dfa", epochs=3, monitor=EAGER)
    names = {"sidecar": tmp_path / "run.json", "trajectory": tmp_path / "run.csv"}
    resume = Resume(tmp_path / "resume", "same")
    train_run(spec, dataset, tmp_path / "run.safetensors", **names, resume=resume, device="cpu")
    facts = json.loads(names["sidecar"].read_text())
    assert facts["stopped_after"] == 1 and facts["spec"]["monitor"] == dict(EAGER)
    rows = read_trajectory(names["trajectory"])
    rows[0]["growth"] = 60.0  # above the protocol's own limit
    names["trajectory"].write_text(trajectory_csv(rows))
    names["sidecar"].write_text(json.dumps(facts | {"trajectory_sha256": sha256_of([names["trajectory"]])}))
    save_dataset(dataset, tmp_path / "data.safetensors")
    frozen = facts | {
        "spec": facts["spec"] | {"frozen_blocks": 3, "monitor": {}},
        "accuracy": 0.1,
        "stopped_after": None,
    }
    (tmp_path / "frozen.json").write_text(json.dumps(frozen))
    arguments = ["--data", tmp_path / "data.safetensors", "--frozen", tmp_path / "frozen.json", "--format", "json"]
    assert main(["audit", str(tmp_path / "run.safetensors"), *map(str, arguments)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["first_flags"] == {"first_scale_flag": 1, "first_reference_flag": None}
    depth = printed["checks"]["depth"]
    assert depth["fires"] is None and depth["note"] == "no frozen baseline of 1 epochs, after which it stopped"


def test_an_audit_of_a_stopped_run_keeps_what_else_fired(dataset, make_spec):
    run = train(make_spec("dfa", epochs=3, monitor=EAGER), dataset)
    limits = DiagnosticThresholds(growth=1e-9, reference=1e9)
    options = {"own_frozen": ("dfa+frozen", 0.9), "bp_frozen_acc": 0.9, "thresholds": limits}
    stopped = audit(run.learner, dataset, run.accuracy, **options, stopped_after=1).to_dict()
    assert stopped["verdict"]["three_check"] == "FAIL(D1+D2)"
    assert audit(run.learner, dataset, run.accuracy, **options).to_dict()["verdict"]["three_check"] == "FAIL(D1+D2+D3)"
