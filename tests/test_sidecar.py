"""A checkpoint's metadata is read or refused in one line, and never taken for that of another run."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.data.dataset import save_dataset
from fa_audit.protocol.audit import Audit
from fa_audit.results.tidy import runs_table
from fa_audit.training import run_files as runfiles
from fa_audit.training.resume import Resume
from fa_audit.training.run_files import train_run
from fa_audit.training.sidecar import check_run, read_baseline, read_sidecar


@pytest.fixture
def training(dataset, make_spec, tmp_path):
    """Trains a run into the folder, under a fingerprint."""
    files = {"sidecar": tmp_path / "run.json", "trajectory": tmp_path / "run.csv"}

    def train(fingerprint="this run", **options):
        resume = Resume(tmp_path / "resume", fingerprint)
        train_run(
            make_spec("dfa", **options),
            dataset,
            tmp_path / "run.safetensors",
            **files,
            resume=resume,
            device="cpu",
        )

    return train


@pytest.fixture
def trained(training, dataset, tmp_path):
    training()
    save_dataset(dataset, tmp_path / "data.safetensors")
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_another_process_trained_meanwhile_is_kept(training, trained, monkeypatch):
    before = contents(trained)
    (trained / "resume").write_text("the state of the process that waited")
    monkeypatch.setattr(runfiles, "train", None)
    training()
    assert contents(trained) == before
    with pytest.raises(
        TypeError
    ):  # what other data, code or another specification gave is trained again
        training("another run")


@pytest.mark.parametrize("name", ["run.safetensors", "run.json", "run.csv"])
def test_results_that_are_missing_or_damaged_are_trained_again(training, trained, name):
    checkpoint = (trained / "run.safetensors").read_bytes()
    for damage in (Path.unlink, lambda path: path.write_bytes(b"{}")):
        damage(trained / name)
        training()
        assert (trained / "run.safetensors").read_bytes() == checkpoint
        facts = read_sidecar(trained / "run.json")
        check_run(
            facts,
            trained / "run.json",
            checkpoint=trained / "run.safetensors",
            trajectory=trained / "run.csv",
        )


CONTENTS = {
    "{}": "spec: ",
    "[]": r".*found \[\]",
    "null": ".*found None",
    "[" * 5000: "found no JSON",
}
ENTRIES = [
    ("accuracy", "0.5"), ("accuracy", True), ("accuracy", 10**400), ("accuracy", None), ("provenance", {}),
    ("provenance", {"device": 1, "commit": "x"}), ("stopped_after", 1.5), ("seconds", {}), ("digest", 1),
    ("checkpoint_sha256", None), ("spec", []), ("spec", {"lr": 10**400}), ("spec", {"dataset": []}),
    ("spec", {"method": "\ud800"}), ("spec", {"method": "a\nb"}), ("spec", {"architecture_options": {"width": {}}}),
    ("spec", {"monitor": {"D1": []}}), ("spec", {"seed": True}),
]  # fmt: skip


@pytest.mark.parametrize("text", CONTENTS)
def test_what_is_no_sidecar_is_refused(tmp_path, text):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(AuditError, match=rf"other.json: {CONTENTS[text]}.* delete it and "):
        read_sidecar(tmp_path / "other.json")


def test_a_wrong_or_missing_entry_is_one_line_with_its_place(trained, capsys):
    facts = json.loads((trained / "run.json").read_text())
    command = [
        "audit",
        str(trained / "run.safetensors"),
        "--data",
        str(trained / "data.safetensors"),
    ]
    changes = [
        facts | {name: facts["spec"] | value if name == "spec" and value else value}
        for name, value in ENTRIES
    ]
    needed = facts.keys() - {"data_sha256", "parameters", "trainable_parameters"}  # recorded since
    missing = [{key: facts[key] for key in facts if key != name} for name in needed]
    places = [
        *(f"run.json: {name}" for name, _ in ENTRIES),
        *(f"run.json: {name}: " for name in needed),
    ]
    for wrong, place in zip([*changes, *missing], places, strict=True):
        (trained / "run.json").write_text(json.dumps(wrong))
        assert main(command) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert len(line) < 1000 and place in line, line
        assert "delete it and run the training again" in line


def test_a_sidecar_says_what_was_trained_on_what(training, trained, dataset):
    facts = read_sidecar(trained / "run.json")
    assert facts["data_sha256"] == dataset.sha256 and facts["provenance"]["cpu"]
    altered = replace(dataset, mean=(0.5,) * len(dataset.mean))
    assert (
        altered.sha256
        != dataset.sha256
        == replace(dataset, train_images=dataset.train_images.clone()).sha256
    )
    inputs, width = math.prod(dataset.image_shape), 8
    embedding, block = inputs * width + width, 2 * width + 2 * (width + 1) * width
    head = 2 * width + (width + 1) * dataset.classes
    assert (facts["parameters"], facts["trainable_parameters"]) == (
        embedding + 3 * block + head,
    ) * 2
    training("another run", frozen_blocks=2)
    facts = read_sidecar(trained / "run.json")
    assert facts["parameters"] - facts["trainable_parameters"] == 2 * block


def test_a_sidecar_and_a_baseline_are_read_as_baselines(trained):
    facts = read_baseline(trained / "run.json")
    baseline = {"run": "dfa"} | {
        k: facts[k] for k in ("accuracy", "spec", "digest", "checkpoint_sha256")
    }
    (trained / "baseline.json").write_text(json.dumps(baseline))
    assert read_baseline(trained / "baseline.json") == baseline
    with pytest.raises(AuditError, match=r"baseline.json: fingerprint: "):
        read_sidecar(trained / "baseline.json")


def test_a_validation_accuracy_is_in_the_audit_and_its_table_and_an_edited_one_is_refused(
    training, trained, capsys
):
    training("another run", validation=0.2, optimiser="sgd")
    command = [
        "audit",
        str(trained / "run.safetensors"),
        "--data",
        str(trained / "data.safetensors"),
    ]
    facts = json.loads((trained / "run.json").read_text())
    assert main([*command, "--format", "json"]) == 0
    audit = Audit.from_dict(json.loads(capsys.readouterr().out))
    row = runs_table([audit.model_copy(update={"setting": "s", "run": "dfa", "seed": 3})]).iloc[0]
    assert audit.validation_acc == row["validation_acc"] == facts["validation_accuracy"]
    assert (row["lr"], row["optimiser"], row["normalise"], row["validation"]) == (
        1e-3,
        "sgd",
        True,
        0.2,
    )
    other = {key: value for key, value in facts["spec"].items() if key != "optimiser"}
    (trained / "run.json").write_text(json.dumps(facts | {"spec": other}))
    assert main(command) == 1 and "optimiser 'adamw', not 'sgd'" in capsys.readouterr().err
    for wrong in (0.999, None):
        (trained / "run.json").write_text(json.dumps(facts | {"validation_accuracy": wrong}))
        assert (
            main(command) == 1
            and f"validation_accuracy: found {wrong}; the netw" in capsys.readouterr().err
        )


def test_an_edited_accuracy_and_a_trajectory_with_holes_are_refused(trained, capsys):
    facts, rows = (
        json.loads((trained / "run.json").read_text()),
        (trained / "run.csv").read_text().splitlines(),
    )
    command = [
        "audit",
        str(trained / "run.safetensors"),
        "--data",
        str(trained / "data.safetensors"),
    ]
    (trained / "run.json").write_text(json.dumps(facts | {"accuracy": 0.999}))
    assert main(command) == 1 and "its last row has the test accuracy" in capsys.readouterr().err
    (trained / "run.csv").unlink()
    assert main(command) == 1 and "the network of its checkpoint has 0." in capsys.readouterr().err
    (trained / "run.json").unlink()
    for kept, words in (
        (rows[:-1], "epoch 2 state 3"),
        (rows[:3] + rows[4:], "epoch 1 state 2"),
        (rows[:1], "rows."),
    ):
        (trained / "run.csv").write_text("\n".join(kept))
        assert main(command) == 1 and words in capsys.readouterr().err
