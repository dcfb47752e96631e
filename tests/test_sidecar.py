"""A checkpoint's metadata is read or refused in one line, and never taken for that of another run."""

import json
import math
import shutil
from pathlib import Path

import pytest

from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.core.files import signed, write_json
from fa_audit.data.dataset import save_dataset
from fa_audit.protocol.audit import Audit
from fa_audit.results.tidy import runs_table
from fa_audit.training import run_files
from fa_audit.training.resume import Resume
from fa_audit.training.run_files import train_run
from fa_audit.training.sidecar import Baseline, check_run, read_sidecar


@pytest.fixture
def training(dataset, make_spec, tmp_path):
    """Trains a run into the folder, under a fingerprint."""

    def train(fingerprint="this run", name="run", **options):
        checkpoint = tmp_path / f"{name}.safetensors"
        files = {kind: checkpoint.with_suffix(end) for kind, end in ENDINGS.items()}
        resume = Resume(tmp_path / "resume", fingerprint)
        train_run(
            make_spec("dfa", **options), dataset, checkpoint, **files, resume=resume, device="cpu"
        )

    return train


ENDINGS = {"sidecar": ".json", "trajectory": ".csv"}


@pytest.fixture
def trained(training, dataset, tmp_path):
    training()
    save_dataset(dataset, tmp_path / "data.safetensors")
    return tmp_path


@pytest.fixture
def audit(trained, capsys):
    """Audits the run: what is printed, or the one line of its refusal."""

    def command():
        files = [str(trained / "run.safetensors"), "--data", str(trained / "data.safetensors")]
        status = main(["audit", *files, "--format", "json"])
        printed = capsys.readouterr()
        return printed.err.strip().removeprefix("fa-audit: ") if status else printed.out

    return command


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_another_process_trained_meanwhile_is_kept(training, trained, monkeypatch):
    before = contents(trained)
    (trained / "resume").write_text("the state of the process that waited")
    monkeypatch.setattr(run_files, "train", None)
    training()
    assert contents(trained) == before
    with pytest.raises(TypeError):  # what other data, code or a specification gave is trained again
        training("another run")


@pytest.mark.parametrize("name", ["run.safetensors", "run.json", "run.csv"])
def test_results_that_are_missing_or_damaged_are_trained_again(training, trained, name):
    checkpoint = (trained / "run.safetensors").read_bytes()
    for damage in (Path.unlink, lambda path: path.write_bytes(b"{}")):
        damage(trained / name)
        training()
        assert (trained / "run.safetensors").read_bytes() == checkpoint
        sidecar, files = trained / "run.json", {"trajectory": trained / "run.csv"}
        check_run(read_sidecar(sidecar), sidecar, checkpoint=trained / "run.safetensors", **files)


ENTRIES = [
    ("accuracy", 10**400), ("accuracy", None), ("stopped_after", 1.5), ("digest", 1), ("spec", []),
]  # fmt: skip
OPTIONAL = {"data_sha256", "parameters", "trainable_parameters", "content"}


def test_a_wrong_or_missing_entry_is_one_line_with_its_place(trained):
    path = trained / "run.json"
    facts = json.loads(path.read_text())
    changed = [(name, facts | {name: value}) for name, value in ENTRIES]
    for name in facts.keys() - OPTIONAL:
        changed.append((name, {key: facts[key] for key in facts if key != name}))
    for name, wrong in changed:
        path.write_text(json.dumps(wrong))
        with pytest.raises(
            AuditError, match=rf"^{path}: {name}\b.*run the training again"
        ) as caught:
            read_sidecar(path)
        assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("name", "value"), [("accuracy", 0.5), ("digest", "0" * 8), ("stopped_after", 1)]
)
def test_an_edited_entry_is_refused(trained, audit, name, value):
    facts = json.loads((trained / "run.json").read_text())
    (trained / "run.json").write_text(json.dumps(facts | {name: value}))
    assert "run.json: " in audit()


@pytest.mark.parametrize("options", [{}, {"seed": 9}])
def test_a_sidecar_that_was_copied_beside_another_checkpoint_is_refused(
    training, trained, audit, options
):
    training("another run", "other", lr=2e-3, **options)
    shutil.copyfile(trained / "other.json", trained / "run.json")
    (trained / "run.csv").unlink()
    said = audit()
    assert said.startswith(str(trained / "run")) and len(said.splitlines()) == 1


def test_a_sidecar_says_what_was_trained_on_what(training, trained, dataset):
    facts = read_sidecar(trained / "run.json")
    assert facts["data_sha256"] == dataset.sha256 and facts["provenance"]["cpu"]
    inputs, width = math.prod(dataset.image_shape), 8
    embedding, block = inputs * width + width, 2 * width + 2 * (width + 1) * width
    head = 2 * width + (width + 1) * dataset.classes
    assert facts["parameters"] == facts["trainable_parameters"] == embedding + 3 * block + head
    training("another run", frozen_blocks=2)
    facts = read_sidecar(trained / "run.json")
    assert facts["parameters"] - facts["trainable_parameters"] == 2 * block


def test_a_sidecar_and_a_baseline_are_read_as_baselines(trained):
    facts = read_sidecar(trained / "run.json", Baseline)
    kept = {key: facts[key] for key in ("accuracy", "spec", "digest", "checkpoint_sha256")}
    write_json(trained / "baseline.json", {"run": "dfa"} | kept)
    assert read_sidecar(trained / "baseline.json", Baseline) == {"run": "dfa"} | kept
    with pytest.raises(AuditError, match=r"baseline.json: fingerprint: "):
        read_sidecar(trained / "baseline.json")


def test_a_validation_accuracy_is_in_the_audit_and_its_table_and_a_wrong_one_is_refused(
    training, trained, audit
):
    training("another run", validation=0.2, optimiser="sgd")
    facts = json.loads((trained / "run.json").read_text())
    found = Audit.from_dict(json.loads(audit()))
    row = runs_table([found.model_copy(update={"setting": "s", "run": "dfa", "seed": 3})]).iloc[0]
    assert found.validation_acc == row["validation_acc"] == facts["validation_accuracy"]
    assert (row["lr"], row["optimiser"], row["normalise"]) == (1e-3, "sgd", True)
    assert row["validation"] == 0.2
    other = {key: value for key, value in facts["spec"].items() if key != "optimiser"}
    wrong = {"spec": other}, {"validation_accuracy": 0.999}, {"validation_accuracy": None}
    for entry, words in zip(wrong, ("optimiser 'adamw'", "validation_acc", "validation_acc")):
        write_json(trained / "run.json", signed(facts | entry))
        assert words in audit()


def test_an_accuracy_of_another_network_and_a_trajectory_with_holes_are_refused(trained, audit):
    facts = json.loads((trained / "run.json").read_text())
    rows = (trained / "run.csv").read_text().splitlines()
    write_json(trained / "run.json", signed(facts | {"accuracy": 0.999}))
    assert "run.csv: " in audit()
    (trained / "run.csv").unlink()
    assert "run.json: accuracy" in audit()
    (trained / "run.json").unlink()
    for kept in (rows[:-1], rows[:3] + rows[4:], rows[:1]):
        (trained / "run.csv").write_text("\n".join(kept))
        assert "run.csv: " in audit()
