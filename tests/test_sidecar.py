"""A checkpoint's metadata is read or refused in one line, and never taken for that of another run."""

import json
from pathlib import Path

import pytest

from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.data.dataset import save_dataset
from fa_audit.training import run_files as runfiles
from fa_audit.training.checkpoint import Resume
from fa_audit.training.run_files import train_run
from fa_audit.training.sidecar import check_baseline, check_run, check_spec, read_baseline, read_sidecar


@pytest.fixture
def training(dataset, make_spec, tmp_path):
    """Trains a run into the folder, under a fingerprint."""
    files = {"sidecar": tmp_path / "run.json", "trajectory": tmp_path / "run.csv"}

    def train(fingerprint="this run"):
        resume = Resume(tmp_path / "resume", fingerprint)
        train_run(make_spec("dfa"), dataset, tmp_path / "run.safetensors", **files, resume=resume, device="cpu")

    return train


@pytest.fixture
def trained(training, dataset, tmp_path):
    training()
    save_dataset(dataset, tmp_path / "data.safetensors")
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- a training that is done ---------------------------------------------------------------------------------------


def test_what_another_process_trained_meanwhile_is_kept(training, trained, monkeypatch):
    before = contents(trained)
    (trained / "resume").write_text("the state of the process that waited")
    monkeypatch.setattr(runfiles, "train", None)
    training()
    assert contents(trained) == before


@pytest.mark.parametrize("name", ["run.safetensors", "run.json", "run.csv"])
def test_results_that_are_missing_or_damaged_are_trained_again(training, trained, name):
    checkpoint = (trained / "run.safetensors").read_bytes()
    for damage in (Path.unlink, lambda path: path.write_bytes(b"{}")):
        damage(trained / name)
        training()
        assert (trained / "run.safetensors").read_bytes() == checkpoint
        facts = read_sidecar(trained / "run.json")
        check_run(facts, trained / "run.json", checkpoint=trained / "run.safetensors", trajectory=trained / "run.csv")


def test_results_of_other_data_code_or_specification_are_trained_again(training, trained, monkeypatch):
    monkeypatch.setattr(runfiles, "train", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        training("another run")


def test_a_file_of_another_run_is_refused_with_the_differences(trained, make_spec):
    check_spec(make_spec("dfa"), make_spec("dfa"), "c.safetensors")
    words = r"c.safetensors: of another run than expected: .*lr 0.5, not 0.001.* Delete it and make it again"
    with pytest.raises(AuditError, match=words):
        check_spec(make_spec("dfa", lr=0.5, width=9), make_spec("dfa"), "c.safetensors")
    facts, spec = read_baseline(trained / "run.json"), make_spec("dfa", penalty=0.1)
    check_baseline(facts, "dfa", spec, "b.json")
    with pytest.raises(AuditError, match=r"b.json: .*frozen_blocks 0, not 3. Expected dfa\+frozen with the network"):
        check_baseline(facts, "dfa+frozen", spec, "b.json")


# --- what is no sidecar ----------------------------------------------------------------------------------------------

CONTENTS = {
    "{}": "missing spec, digest, accuracy, checkpoint_sha256",
    "[]": r"found \[\]",
    "null": "found None",
    "[" * 5000: "found no JSON",
    '{"accuracy": NaN}': "found no JSON",
    "": "found an empty file",
}
ENTRIES = [
    ("accuracy", "0.5"), ("accuracy", True), ("accuracy", 10**400), ("accuracy", None), ("provenance", {}),
    ("provenance", {"device": 1, "commit": "x"}), ("stopped_after", 1.5), ("seconds", {}), ("digest", 1),
    ("checkpoint_sha256", None), ("spec", []), ("spec", {"lr": 10**400}), ("spec", {"dataset": []}),
    ("spec", {"method": "\ud800"}), ("spec", {"method": "a\nb"}), ("spec", {"architecture_options": {"width": {}}}),
    ("spec", {"monitor": {"D1": []}}), ("spec", {"seed": True}),
]  # fmt: skip


def refused(capsys, folder, *options):
    arguments = [str(folder / "run.safetensors"), "--data", str(folder / "data.safetensors")]
    assert main(["audit", *arguments, "--format", "json", *options]) == 1
    line = capsys.readouterr().err
    assert len(line.splitlines()) == 1 and len(line) < 1000, line
    return line


@pytest.mark.parametrize("text", CONTENTS)
def test_what_is_no_sidecar_is_refused(tmp_path, text):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(AuditError, match=rf"other.json: {CONTENTS[text]}.*expected .* delete it and "):
        read_sidecar(tmp_path / "other.json")


def test_a_wrong_entry_is_one_line_with_its_place(trained, capsys):
    facts = json.loads((trained / "run.json").read_text())
    for name, value in ENTRIES:
        wrong = facts["spec"] | value if name == "spec" and value else value
        (trained / "run.json").write_text(json.dumps(facts | {name: wrong}))
        line = refused(capsys, trained)
        assert f"run.json: {name}" in line and "; expected " in line and "delete it and run the training again" in line


@pytest.mark.parametrize("name", ["checkpoint_sha256", "trajectory_sha256", "stopped_after", "provenance", "spec"])
def test_a_sidecar_without_an_entry_is_refused(trained, name):
    facts = json.loads((trained / "run.json").read_text())
    (trained / "run.json").write_text(json.dumps({key: value for key, value in facts.items() if key != name}))
    with pytest.raises(AuditError, match=f"run.json: missing {name}; expected what a training writes"):
        read_sidecar(trained / "run.json")


def test_a_sidecar_and_a_baseline_are_read_as_baselines(trained):
    facts = read_baseline(trained / "run.json")
    baseline = {"run": "dfa"} | {k: facts[k] for k in ("accuracy", "spec", "digest", "checkpoint_sha256")}
    (trained / "baseline.json").write_text(json.dumps(baseline))
    assert read_baseline(trained / "baseline.json") == baseline
    with pytest.raises(AuditError, match=r"baseline.json: missing fingerprint, seconds, stopped_after"):
        read_sidecar(trained / "baseline.json")


def test_a_trajectory_with_an_empty_number_is_refused(trained, capsys):
    header, first, *rows = (trained / "run.csv").read_text().splitlines()
    (trained / "run.json").unlink()
    for column in ("epoch", "layer", "grad_norm", "test_accuracy"):
        cells = first.split(",")
        cells[header.split(",").index(column)] = ""
        (trained / "run.csv").write_text("\n".join([header, ",".join(cells), *rows]))
        assert "run.csv: expected a trajectory" in refused(capsys, trained)


def test_an_edited_accuracy_and_a_trajectory_with_holes_are_refused(trained, capsys):
    facts, rows = json.loads((trained / "run.json").read_text()), (trained / "run.csv").read_text().splitlines()
    (trained / "run.json").write_text(json.dumps(facts | {"accuracy": 0.999}))
    assert "its last row has the test accuracy" in refused(capsys, trained)
    (trained / "run.json").unlink()
    for kept, words in ((rows[:-1], "epoch 2 state 3"), (rows[:3] + rows[4:], "epoch 1 state 2"), (rows[:1], "rows.")):
        (trained / "run.csv").write_text("\n".join(kept))
        assert words in refused(capsys, trained)
