"""Runs that end early: which checks fire at which epoch, what stops a training, and what an audit
makes of it.
"""

import json
from dataclasses import replace

import pytest

from fa_audit.audit.run_audit import audit_files
from fa_audit.core.files import sha256_of, signed, write_json
from fa_audit.data.dataset import save_dataset
from fa_audit.training.loop import train
from fa_audit.training.monitor import fired, first_flags, should_stop
from fa_audit.training.resume import Resume
from fa_audit.training.run_files import train_run
from fa_audit.training.trajectory import read_trajectory, trajectory_csv

LIMITS = (("D1", 50.0), ("D2", 1e-7))
EAGER = (("D1", 1e-9), ("D2", 1e9))  # fires at once
NAN, INF = float("nan"), float("inf")


def epoch(number, growths, grad_norm):
    """The rows of one epoch: one growth per block, and the gradient norm of the last state (1 for
    the others).
    """
    rows = [
        {"epoch": number, "layer": i, "growth": g, "grad_norm": 1.0} for i, g in enumerate(growths)
    ]
    return [*rows, {"epoch": number, "layer": len(growths), "growth": None, "grad_norm": grad_norm}]


@pytest.mark.parametrize(
    ("growths", "grad_norm", "expected"),
    [
        ([1.0, 51.0], 1e-8, {"D1", "D2"}),
        ([51.0, 1.0], 1e-6, {"D1"}),
        ([50.0, 50.0], 1e-8, {"D2"}),
        ([50.0], 1e-7, set()),  # limits themselves do not fire
        ([NAN, INF], NAN, {"D1"}),
        ([], 1e-8, {"D2"}),  # no blocks
    ],
)
def test_the_checks_of_one_epoch(growths, grad_norm, expected):
    states = epoch(3, growths, grad_norm)
    assert {check for check, limit in LIMITS if fired(check, states, limit)} == expected
    assert should_stop(LIMITS, states) == (expected == {"D1", "D2"})
    assert not should_stop((), states) and not should_stop(LIMITS, [])
    flags = first_flags(states, 50.0, 1e-7)
    assert [flags["first_scale_flag"], flags["first_reference_flag"]] == [
        3 if check in expected else None for check in ("D1", "D2")
    ]


def test_only_the_last_epoch_stops_a_training_and_the_first_is_flagged():
    bad, good, worse = epoch(1, [99.0], 1e-3), epoch(2, [1.0], 1e-3), epoch(3, [99.0], 1e-9)
    assert should_stop(LIMITS[:1], bad) and not should_stop(LIMITS[:1], [*bad, *good])
    rows = [*worse[::-1], *good, *bad]  # in any order
    assert should_stop(LIMITS, rows)
    assert first_flags(rows, 50.0, 1e-7) == {"first_scale_flag": 1, "first_reference_flag": 3}


def test_a_monitor_ends_the_training_after_the_first_epoch_that_fires(dataset, make_spec, tmp_path):
    steps = {"epochs": 4, "lr": 2e-2, "batch_size": 2}
    whole = train(make_spec("dfa", **steps), dataset)
    growths = [0.0] * 5
    for row in whole.history:
        growths[row["epoch"]] = max(growths[row["epoch"]], row["growth"] or 0.0)
    limit = max(growths[:3])
    assert limit < growths[3]
    spec = make_spec("dfa", **steps, monitor=(("D1", limit),))
    resume = Resume(tmp_path / "resume", "same")
    for _ in range(2):  # again where its results were lost
        stopped = train(spec, dataset, resume=resume)
        assert stopped.stopped_after == 3 and whole.stopped_after is None
        # The same steps, then none.
        assert stopped.history == [row for row in whole.history if row["epoch"] <= 3]
        assert stopped.accuracy == stopped.history[-1]["test_accuracy"]
    longer = replace(spec, epochs=5)
    assert train(replace(longer, snapshot=3), dataset).stopped_after is None
    assert train(replace(longer, snapshot=4), dataset).stopped_after == 3
    # It had ended anyway.
    assert train(make_spec("dfa", epochs=1, monitor=EAGER), dataset).stopped_after is None


def test_the_sidecar_records_it_and_the_audit_compares_with_no_baseline(
    dataset, make_spec, tmp_path
):
    spec = make_spec("dfa", epochs=3, monitor=EAGER)
    checkpoint, data = tmp_path / "run.safetensors", tmp_path / "data.safetensors"
    files = {"sidecar": tmp_path / "run.json", "trajectory": tmp_path / "run.csv"}
    resume = Resume(tmp_path / "resume", "same")
    train_run(spec, dataset, checkpoint, **files, resume=resume, device="cpu")
    facts = json.loads(files["sidecar"].read_text())
    assert facts["stopped_after"] == 1 and facts["spec"]["monitor"] == dict(EAGER)
    rows = read_trajectory(files["trajectory"])
    rows[0]["growth"] = 60.0  # above the protocol's own limit
    files["trajectory"].write_text(trajectory_csv(rows))
    facts |= {"trajectory_sha256": sha256_of(files["trajectory"])}
    write_json(files["sidecar"], signed(facts))
    save_dataset(dataset, data)
    whole = {"spec": facts["spec"] | {"frozen_blocks": 3, "monitor": {}}, "stopped_after": None}
    write_json(tmp_path / "frozen.json", signed(facts | whole))
    baselines = {"own": tmp_path / "frozen.json"}
    report, *_ = audit_files(checkpoint, data, **files, baselines=baselines, spec=spec)
    assert report.first_flags == {"first_scale_flag": 1, "first_reference_flag": None}
    depth = report.checks["depth"]
    assert depth.fires is None and "after which it stopped" in depth.note
