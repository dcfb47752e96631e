"""Audits, sidecars, trajectories and checkpoints given to the command line: a result, or one line; nothing executes."""

import contextlib
import io
import shutil
import signal
import subprocess
import sys

import pytest
from hostile_files import hostile_checkpoint, hostile_csv, hostile_json

from fa_audit.cli import main
from fa_audit.core.files import sha256_of, write_json
from fa_audit.data.dataset import save_dataset
from fa_audit.data.digits import digits

AUDITS, CHECKPOINTS, SIDECARS, MANIFESTS = 300, 300, 120, 100
SAMPLE = 60  # of each kind in the ordinary suite
SECONDS = 60  # no file takes longer
RUNS = ("dfa", "ep", "credit_bridge")
SMALL = ["--width", "16", "--depth", "2", "--epochs", "1", "--batch-size", "64"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a run, its frozen baseline and two audits, and runs whose methods have constants, all whole."""
    folder = tmp_path_factory.mktemp("whole")
    data = digits(None)
    save_dataset(data, folder / "digits.safetensors")
    for seed, runs in {"1": (*RUNS, "dfa+frozen"), "2": ("dfa", "dfa+frozen")}.items():
        for run in runs:
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
    """Call the command line: nothing if it has a result, with nothing but warnings, or else its one readable line."""
    status, out, err = called(arguments)
    refusals = [line for line in err.splitlines() if line.startswith("fa-audit: ")]
    assert "Traceback" not in out + err, err
    assert (status, len(refusals)) in ((0, 0), (1, 1)), err
    if status:
        assert (
            not out and len(refusals[0]) > 30 and refusals[0].isprintable() and err.splitlines()[-1] == refusals[0]
        ), err
    return refusals[0] if refusals else ""


def some_or_all(count, faults):
    """Few numbers for the ordinary suite, the rest of them under the marker `faults`."""
    return range(SAMPLE, count) if faults else range(SAMPLE)


few_and_all = pytest.mark.parametrize(
    "faults", [False, pytest.param(True, marks=pytest.mark.faults)], ids=["few", "all"]
)


@few_and_all
def test_a_hostile_audit_is_reported_or_refused_in_one_line(whole, tmp_path, faults):
    good, bad = (whole / "audit1.json").read_bytes(), tmp_path / "audit.json"
    refused = set()
    for number in some_or_all(AUDITS, faults):
        bad.write_bytes(hostile_json(good, number))
        others = [whole / "audit2.json"] if number % 3 == 0 else []
        refused.add(bool(check(["report", bad, *others, "--format", ("markdown", "latex")[number % 2]])))
    assert refused == {False, True}


@few_and_all
def test_a_hostile_checkpoint_is_audited_or_refused_in_one_line_and_executes_nothing(whole, tmp_path, faults):
    good, trap = [(whole / f"{run}1.safetensors").read_bytes() for run in RUNS], tmp_path / "executed"
    refused = set()
    for number in some_or_all(CHECKPOINTS, faults):
        folder = tmp_path / str(number)
        folder.mkdir()
        hostile_checkpoint(good[number % 3], number, folder / "c.safetensors", trap)
        line = check(["audit", folder / "c.safetensors", "--data", whole / "digits.safetensors"])
        assert not trap.exists()
        named = line.startswith(f"fa-audit: {folder / 'c.safetensors'}: ") and "train the run again" in line
        assert not line or named or "Give the data set that it was trained on" in line, line
        refused.add(bool(line))
        shutil.rmtree(folder)
    assert refused == {False, True}
    assert list(tmp_path.iterdir()) == [] and not (tmp_path.parent / "escaped").exists()


@few_and_all
def test_hostile_sidecars_baselines_and_trajectories_are_read_or_refused_in_one_line(whole, tmp_path, faults):
    for path in whole.glob("dfa*"):
        shutil.copyfile(path, tmp_path / path.name)
    arguments = ["audit", tmp_path / "dfa1.safetensors", "--data", whole / "digits.safetensors"]
    refused = set()
    for number in some_or_all(SIDECARS, faults):
        name = ("dfa1.json", "dfa+frozen1.json", "dfa1.csv")[number % 3]
        good = (whole / name).read_bytes()
        damage = hostile_json if name.endswith("json") else hostile_csv
        (tmp_path / name).write_bytes(damage(good, number))
        if name == "dfa1.csv" and number % 2:
            (tmp_path / "dfa1.json").unlink()  # whose SHA-256 tells of every change before anything else does
        formats = ["--format", ("json", "text", "markdown")[number // 3 % 3]]
        refused.add((name, bool(check([*arguments, "--frozen", tmp_path / "dfa+frozen1.json", *formats]))))
        for changed in (name, "dfa1.json"):
            shutil.copyfile(whole / changed, tmp_path / changed)
    assert len(refused) == 6


@few_and_all
def test_a_hostile_manifest_is_compared_or_refused_in_one_line(tmp_path, faults, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/a.csv").write_text("1\n")
    digest, path = sha256_of(tmp_path / "results/a.csv"), tmp_path / "results/MANIFEST.json"
    entry = {"sha256": digest, "commit": "1234567", "spec": digest, "inputs": {"results/a.csv": digest}}
    write_json(path, {"versions": {"python": "3.12"}, "artefacts": {"results/a.csv": entry}})
    good, answers = path.read_bytes(), set()
    for number in some_or_all(MANIFESTS, faults):
        path.write_bytes(hostile_json(good, number))
        status, out, err = called(["verify"])
        refusals = err.splitlines()
        assert not refusals or ((status, out, len(refusals)) == (1, "", 1) and refusals[0].isprintable()), err
        answers.add((status, bool(refusals)))
    assert answers == {(0, False), (1, False), (1, True)}


def test_the_same_in_a_process_of_its_own(whole, tmp_path):
    hostile_checkpoint((whole / "dfa1.safetensors").read_bytes(), 1, tmp_path / "c.safetensors", tmp_path / "executed")
    for command, path in (("audit", tmp_path / "c.safetensors"), ("report", whole / "dfa1.csv")):
        call = [sys.executable, "-m", "fa_audit.cli", command, str(path)]
        done = subprocess.run(call, capture_output=True, text=True)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done.stderr
        assert done.stderr.startswith(f"fa-audit: {path}: ")
