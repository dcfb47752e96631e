"""Audits, sidecars, trajectories and checkpoints given to the command line: a result, or one line; nothing executes."""

import contextlib
import io
import random
import shutil
import signal
import subprocess
import sys

import pytest
from hostile_files import flipped, hostile_checkpoint, hostile_json

from fa_audit.cli import main
from fa_audit.data import save_dataset
from fa_audit.datasets.digits import digits

AUDITS, CHECKPOINTS, SIDECARS = 300, 300, 100
SAMPLE = 60  # of each kind in the ordinary suite
SECONDS = 60  # no file takes longer
SMALL = ["--width", "16", "--depth", "2", "--epochs", "1", "--batch-size", "64"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a run, its frozen baseline and two audits, all whole."""
    folder = tmp_path_factory.mktemp("whole")
    data = digits(None)
    save_dataset(data, folder / "digits.safetensors")
    for seed in ("1", "2"):
        for run in ("dfa", "dfa+frozen"):
            arguments = ["train", run, f"{folder}/{run}{seed}.safetensors", "--data", f"{folder}/digits.safetensors"]
            assert main([*arguments, *SMALL, "--seed", seed]) == 0
        audited = ["audit", f"{folder}/dfa{seed}.safetensors", "--frozen", f"{folder}/dfa+frozen{seed}.json"]
        status, out, _ = called([*audited, "--data", f"{folder}/digits.safetensors", "--format", "json"])
        assert status == 0
        (folder / f"audit{seed}.json").write_text(out)
    return folder


def called(arguments):
    """Exit status, output and errors of the command line, which must end in time."""
    out, err = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(list(map(str, arguments)))
    finally:
        signal.alarm(0)
    return status, out.getvalue(), err.getvalue()


def check(arguments):
    """Call the command line: a result with nothing but warnings, or one readable line and status 1."""
    status, out, err = called(arguments)
    refusals = [line for line in err.splitlines() if line.startswith("fa-audit: ")]
    assert "Traceback" not in out + err, err
    assert (status, len(refusals)) in ((0, 0), (1, 1)), err
    if status:
        assert (
            not out and len(refusals[0]) > 30 and refusals[0].isprintable() and err.splitlines()[-1] == refusals[0]
        ), err
    return status


def some_or_all(count, faults):
    """Few numbers for the ordinary suite, the rest of them under the marker `faults`."""
    return range(SAMPLE, count) if faults else range(SAMPLE)


few_and_all = pytest.mark.parametrize(
    "faults", [False, pytest.param(True, marks=pytest.mark.faults)], ids=["few", "all"]
)


@few_and_all
def test_a_hostile_audit_is_reported_or_refused_in_one_line(whole, tmp_path, faults):
    good, bad = (whole / "audit1.json").read_bytes(), tmp_path / "audit.json"
    statuses = set()
    for number in some_or_all(AUDITS, faults):
        bad.write_bytes(hostile_json(good, number))
        others = [whole / "audit2.json"] if number % 3 == 0 else []
        statuses.add(check(["report", bad, *others, "--format", ("markdown", "latex")[number % 2]]))
    assert statuses == {0, 1}


@few_and_all
def test_a_hostile_checkpoint_is_audited_or_refused_in_one_line_and_executes_nothing(whole, tmp_path, faults):
    good, trap = (whole / "dfa1.safetensors").read_bytes(), tmp_path / "executed"
    statuses = set()
    for number in some_or_all(CHECKPOINTS, faults):
        folder = tmp_path / str(number)
        folder.mkdir()
        hostile_checkpoint(good, number, folder / "c.safetensors", trap)
        statuses.add(check(["audit", folder / "c.safetensors", "--data", whole / "digits.safetensors"]))
        assert not trap.exists()
        shutil.rmtree(folder)
    assert statuses == {0, 1}
    assert list(tmp_path.iterdir()) == [] and not (tmp_path.parent / "escaped").exists()


@few_and_all
def test_hostile_sidecars_baselines_and_trajectories_are_read_or_refused_in_one_line(whole, tmp_path, faults):
    for path in whole.glob("dfa*"):
        shutil.copyfile(path, tmp_path / path.name)
    arguments = ["audit", tmp_path / "dfa1.safetensors", "--data", whole / "digits.safetensors"]
    statuses = set()
    for number in some_or_all(SIDECARS, faults):
        name = ("dfa1.json", "dfa+frozen1.json", "dfa1.csv")[number % 3]
        good = (whole / name).read_bytes()
        json_file = name.endswith("json")
        damaged = hostile_json(good, number) if json_file else flipped(good, random.Random(number), range(len(good)))
        (tmp_path / name).write_bytes(damaged)
        formats = ["--format", ("json", "text", "markdown")[number // 3 % 3]]
        statuses.add(check([*arguments, "--frozen", tmp_path / "dfa+frozen1.json", *formats]))
        (tmp_path / name).write_bytes(good)
    assert statuses == {0, 1}


def test_the_same_in_a_process_of_its_own(whole, tmp_path):
    hostile_checkpoint((whole / "dfa1.safetensors").read_bytes(), 1, tmp_path / "c.safetensors", tmp_path / "executed")
    for command, path in (("audit", tmp_path / "c.safetensors"), ("report", whole / "dfa1.csv")):
        call = [sys.executable, "-m", "fa_audit.cli", command, str(path)]
        done = subprocess.run(call, capture_output=True, text=True)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done.stderr
        assert done.stderr.startswith(f"fa-audit: {path}: ")
