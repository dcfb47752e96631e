"""What stands beside a checkpoint: read back or refused in one line, and never taken for that of another run."""

import json
import runpy
import sys
from types import SimpleNamespace

import pytest
from projects import ROOT

from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.data.dataset import save_dataset
from fa_audit.training import run_files as runfiles
from fa_audit.training.checkpoint import Resume
from fa_audit.training.run_files import train_run
from fa_audit.training.sidecar import check_run, check_spec, read_sidecar

sys.path.insert(0, str(ROOT / "workflow_scripts"))

from _workflow import logged


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
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"{}")])
def test_results_that_are_not_whole_are_trained_again(training, trained, name, damage):
    checkpoint = (trained / "run.safetensors").read_bytes()
    damage(trained / name)
    training()
    assert (trained / "run.safetensors").read_bytes() == checkpoint
    facts = read_sidecar(trained / "run.json", "fingerprint")
    check_run(facts, trained / "run.json", checkpoint=trained / "run.safetensors", trajectory=trained / "run.csv")


def test_results_of_other_data_code_or_specification_are_trained_again(training, trained, monkeypatch):
    monkeypatch.setattr(runfiles, "train", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        training("another run")


def test_a_checkpoint_of_another_specification_is_told_with_the_differences(make_spec):
    check_spec(make_spec("dfa"), make_spec("dfa"), "c.safetensors")
    words = r"c.safetensors: of another run than expected: .*lr 0.5, not 0.001.* Delete it and run"
    with pytest.raises(AuditError, match=words):
        check_spec(make_spec("dfa", lr=0.5, width=9), make_spec("dfa"), "c.safetensors")


# --- foreign sidecars ----------------------------------------------------------------------------------------------

ODD = {
    "{}": "missing spec, accuracy",
    "[]": r"found \[\]",
    "null": "found None",
    '{"accuracy": "x"}': "missing spec",
    "[" * 5000: "found no JSON",
    '{"accuracy": NaN}': "found no JSON",
    "": "found an empty file",
}
ODD_ENTRIES = [
    ("accuracy", "0.5"), ("accuracy", True), ("accuracy", 10**400), ("accuracy", -1), ("accuracy", None),
    ("provenance", None), ("provenance", {}), ("provenance", {"device": 1, "commit": "x"}), ("stopped_after", "1"),
    ("stopped_after", 1.5), ("stopped_after", 10**400), ("seconds", {}), ("digest", 1), ("checkpoint_sha256", []),
    ("spec", []), ("spec", None), ("spec", {}), ("spec", "abc"),
]  # fmt: skip
ODD_FIELDS = [
    ("lr", 10**400), ("lr", "x"), ("dataset", []), ("method", "\ud800"), ("method", "a\nb"), ("architecture", None),
    ("architecture_options", []), ("architecture_options", {"width": {}}), ("monitor", {"D1": []}), ("seed", True),
]  # fmt: skip


def refused(capsys, folder, *options):
    arguments = [str(folder / "run.safetensors"), "--data", str(folder / "data.safetensors")]
    assert main(["audit", *arguments, "--format", "json", *options]) == 1
    line = capsys.readouterr().err
    assert len(line.splitlines()) == 1 and len(line) < 1000, line
    return line


@pytest.mark.parametrize("text", ODD)
def test_what_is_no_sidecar_is_refused(trained, tmp_path, text):
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(AuditError, match=rf"odd.json: {ODD[text]}.* delete it and"):
        read_sidecar(tmp_path / "odd.json")


@pytest.mark.parametrize(("name", "value"), ODD_ENTRIES)
def test_an_odd_entry_is_one_line(trained, capsys, name, value):
    facts = json.loads((trained / "run.json").read_text())
    (trained / "run.json").write_text(json.dumps(facts | {name: value}))
    line = refused(capsys, trained)
    assert f"run.json: {name}: " in line and "delete it and run the training again" in line


@pytest.mark.parametrize(("name", "value"), ODD_FIELDS)
def test_an_odd_specification_is_one_line(trained, capsys, name, value):
    facts = json.loads((trained / "run.json").read_text())
    (trained / "odd.json").write_text(json.dumps(facts | {"spec": facts["spec"] | {name: value}}))
    line = refused(capsys, trained, "--frozen", str(trained / "odd.json"))
    assert "odd.json: spec: " in line and "delete it and run the training again" in line


def test_entries_that_are_needed_are_asked_for(trained):
    facts = json.loads((trained / "run.json").read_text())
    (trained / "old.json").write_text(json.dumps({key: facts[key] for key in ("spec", "accuracy")}))
    assert read_sidecar(trained / "old.json")["accuracy"] == facts["accuracy"]
    with pytest.raises(AuditError, match=r"old.json: missing digest, provenance; expected what a training writes"):
        read_sidecar(trained / "old.json", "digest", "provenance")


@pytest.mark.parametrize("column", ["epoch", "layer", "grad_norm", "test_accuracy"])
def test_a_trajectory_with_an_empty_number_is_refused(trained, capsys, column):
    header, first, *rows = (trained / "run.csv").read_text().splitlines()
    cells = first.split(",")
    cells[header.split(",").index(column)] = ""
    (trained / "run.csv").write_text("\n".join([header, ",".join(cells), *rows]))
    (trained / "run.json").unlink()
    assert "run.csv: expected a trajectory" in refused(capsys, trained)


# --- scripts of the workflow ---------------------------------------------------------------------------------------


def job(folder):
    (folder / ".a.csv.123.part.csv").touch()
    return SimpleNamespace(log=[str(folder / "log")], rule="tidy", output=[str(folder / "a.csv")])


def test_a_file_that_cannot_be_read_ends_a_job_in_one_line(tmp_path):
    with pytest.raises(SystemExit, match=r"^tidy: .*No such file or directory: .*missing'$"), logged(job(tmp_path)):
        (tmp_path / "missing").read_bytes()
    assert not list(tmp_path.glob(".*.part*"))


def test_a_training_leaves_what_another_process_may_be_writing(tmp_path):
    with logged(job(tmp_path), leftovers=False):
        pass
    assert list(tmp_path.glob(".*.part*"))
    assert "leftovers=False" in (ROOT / "workflow_scripts/train.py").read_text()


class Files(dict):
    """Named files of a job, as Snakemake gives them: by name, as attributes, one after the other."""

    __getattr__ = dict.__getitem__

    def __iter__(self):
        return iter(self.values())


def run_script(name, folder, **files):
    """Run a script of the workflow as its rule does."""
    read, written = (Files({key: str(folder / file) for key, file in part.items()}) for part in (files, OUTPUTS[name]))
    given = SimpleNamespace(rule=name, log=[str(folder / "log")], input=read, output=written)
    given.wildcards = SimpleNamespace(run="dfa")
    given.params = SimpleNamespace(spec=json.loads((folder / "run.json").read_text())["spec"])
    runpy.run_path(str(ROOT / f"workflow_scripts/{name}.py"), {"snakemake": given})


OUTPUTS = {
    "collect_baseline": {"baseline": "baseline.json"},
    "sweep_trajectory": {"trajectory": "sweep.csv"},
    "share_run": {"checkpoint": "shared.safetensors", "sidecar": "shared.json", "trajectory": "shared.csv"},
}


def test_a_baseline_is_what_is_known_of_its_run(trained):
    run_script("collect_baseline", trained, sidecar="run.json")
    facts, baseline = (json.loads((trained / name).read_text()) for name in ("run.json", "baseline.json"))
    assert baseline == {"run": "dfa"} | {k: facts[k] for k in ("accuracy", "spec", "digest", "checkpoint_sha256")}


@pytest.mark.parametrize("text", ["{}", "[]", '{"accuracy": "x"}', "[" * 5000])
@pytest.mark.parametrize(("name", "kind"), [("collect_baseline", "sidecar"), ("sweep_trajectory", "audit")])
def test_foreign_json_ends_a_job_in_one_line(trained, name, kind, text):
    (trained / "odd.json").write_text(text)
    with pytest.raises(SystemExit, match=rf"^{name}: .*odd.json: (found|missing) .*; expected .*$"):
        run_script(name, trained, trajectory="run.csv", **{kind: "odd.json"})


def test_a_run_that_cannot_be_copied_is_not_taken_for_a_full_disk(trained):
    with pytest.raises(SystemExit, match=r"^share_run: .*No such file or directory: .*missing'$"):
        run_script("share_run", trained, checkpoint="missing", sidecar="run.json", trajectory="run.csv")
