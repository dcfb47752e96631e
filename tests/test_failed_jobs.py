"""A job that failed is not taken for done: Snakemake's records say so, and its results are gone."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from projects import ROOT, copy_sources, make_all, planned, snakemake
from snakemake.persistence import MetadataRecord
from snakemake.persistence.file import FilePersistence

from fa_audit.core.files import exclusive

sys.path.insert(0, str(ROOT / "workflow_scripts"))

import _records

CONFIG = {
    "settings": {
        "tiny": {
            "dataset": "digits",
            "architecture": {"name": "resmlp", "width": 16, "depth": 2},
            "epochs": 1,
            "seeds": [1],
            "runs": ["dfa"],
            "baselines": ["bp+frozen", "dfa+frozen"],
        }
    },
    "tables": {"main_audit": {"settings": ["tiny"], "title": "tiny"}},
}
TABLE, PROTOCOL = "results/tables/main_audit.csv", "src/fa_audit/audit/verdicts.py"
AUDIT, CHECKPOINT = "results/audits/tiny/dfa/seed1.json", "results/checkpoints/tiny/dfa/seed1.safetensors"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = copy_sources(tmp_path_factory.mktemp("failed") / "project")
    make_all(folder, CONFIG)
    return folder


@pytest.fixture
def project(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "project"))


def fails(folder, *words):
    done = snakemake(folder, TABLE, "--cores", "1")
    assert done.returncode == 1 and "Traceback" not in done.stdout, done.stdout
    assert any(all(word in line for word in words) for line in done.stdout.splitlines()), done.stdout


def ends_as(folder, finished):
    done = snakemake(folder, TABLE, "--cores", "2")
    assert done.returncode == 0, done.stdout
    for path in (TABLE, CHECKPOINT):
        assert (folder / path).read_bytes() == (finished / path).read_bytes()
    assert (folder / AUDIT).exists() and planned(folder, TABLE) == {}


def test_after_a_failed_update_it_is_still_to_be_done_whatever_is_asked_for(project, finished):
    whole = (project / PROTOCOL).read_text()
    (project / PROTOCOL).write_text(whole + "raise ValueError('a bug')\n")
    assert snakemake(project, TABLE, "--cores", "1").returncode == 1
    assert not (project / AUDIT).exists() and (project / TABLE).exists()
    for targets in ((), ("results/tidy/tiny/runs.csv",)):
        jobs = planned(project, *targets)
        assert "audit_network" in jobs and "train_network" not in jobs
    (project / PROTOCOL).write_text(whole)
    ends_as(project, finished)


def test_a_damaged_file_is_told_until_it_is_gone(project, finished):
    (project / CHECKPOINT).write_bytes((project / CHECKPOINT).read_bytes()[:1000])
    for _ in range(2):
        fails(project, CHECKPOINT, "altered, or of another training", "Delete both")
    (project / CHECKPOINT).unlink()
    (project / CHECKPOINT).with_suffix(".json").unlink()
    ends_as(project, finished)


def test_what_its_user_deletes_after_a_success_is_not_missed(project):
    for path in (AUDIT, CHECKPOINT):
        (project / path).unlink()
    assert planned(project) == {}


def test_what_a_killed_workflow_left_undone_is_marked_by_whoever_plans_next_once_it_is_dead(project):
    (project / AUDIT).unlink()
    started = project / ".snakemake/fa-audit.started.json"
    started.write_text(json.dumps([AUDIT, TABLE]))
    with exclusive(project / ".snakemake/fa-audit.lock"):
        assert planned(project, TABLE) == {} and started.exists()
    assert "audit_network" in planned(project, TABLE) and not started.exists()
    assert "audit_network" in planned(project, TABLE)


@pytest.mark.parametrize("length", [10, 150, 185, 200, 375])
def test_a_record_is_found_and_keeps_its_mode_however_long_the_name(tmp_path, monkeypatch, length):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake").mkdir()
    output = f"results/{'x' * length}.csv"
    persistence = FilePersistence()
    persistence._write_record(output, MetadataRecord(params=["a"], rule="r"))
    record = _records.record_of(output)
    record.chmod(0o640)
    _records.note_started([output, "results/without record.csv"])
    _records.settle()
    persistence._clear_cache()
    assert (record_read := persistence._read_record(output)).params == _records.FAILED and record_read.rule == "r"
    assert record.stat().st_mode & 0o777 == 0o640 and _records.recorded_path(record) == Path(output)


def test_a_list_of_what_was_started_without_records_or_cut_short(project):
    started = project / ".snakemake/fa-audit.started.json"
    started.write_text('["results/none.csv"]')
    shutil.rmtree(project / ".snakemake/metadata")
    assert snakemake(project, "-n", TABLE).returncode == 0
    started.write_text('["results/')
    done = snakemake(project, "-n", TABLE)
    assert done.returncode == 1 and "fa-audit.started.json: found no JSON" in done.stdout, done.stdout
