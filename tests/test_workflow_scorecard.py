"""The scorecard through Snakemake: from what is there without training, or from everything that it reads."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from projects import checkpoints, copy_sources, planned, snakemake, write_config

EXPERIMENT = {
    "dataset": "digits",
    "architecture": {"name": "resmlp", "width": 16, "depth": 2},
    "epochs": 1,
    "batch_size": 256,
}
CONFIG = {"settings": {"tiny": EXPERIMENT | {"seeds": [1, 2], "runs": ["bp+frozen"], "baselines": []}}}
COMMON = {"setting": "tiny", "run": "bp+frozen", "n": 2, "seeds": [1, 2], "source": "a paper"}
PUBLISHED = {
    "settings": {"tiny": EXPERIMENT},
    "entries": [
        COMMON | {"quantity": "accuracy", "kind": "value", "value": 0.5, "deviation": None, "tolerance": 0.5},
        COMMON | {"quantity": "scale_flag", "kind": "verdict", "value": True},
        COMMON | {"quantity": "scale_flag", "kind": "verdict", "value": False, "run": "fa"},
    ],
}
MADE = {"build_scorecard", "draw_scorecard"}
FILES = [f"results/scorecard.{kind}" for kind in ("csv", "md", "html", "origin.json")]
FILES += [f"results/figures/scorecard.{kind}" for kind in ("pdf", "png", "origin.json")]
AUDIT = "results/audits/tiny/bp+frozen/seed{}.json"


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A folder with the audit of one of two seeds, its own published numbers, and no scorecard yet."""
    folder = copy_sources(tmp_path_factory.mktemp("scorecard") / "project")
    write_config(folder, CONFIG)
    (folder / "reference/published.yaml").write_text(yaml.safe_dump(PUBLISHED))
    done = snakemake(folder, AUDIT.format(1), "--cores", "2")
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture(scope="module")
def finished(begun, tmp_path_factory):
    """The same after `snakemake reproduce`."""
    folder = Path(shutil.copytree(begun, tmp_path_factory.mktemp("finished") / "project"))
    done = snakemake(folder, "reproduce", "--cores", "2")
    assert done.returncode == 0, done.stdout
    (folder / "reproduce.log").write_text(done.stdout)
    return folder


def test_the_scorecard_alone_takes_what_is_there_and_trains_nothing_even_if_it_is_stale(begun, tmp_path):
    project = Path(shutil.copytree(begun, tmp_path / "project"))
    with (project / "src/fa_audit/methods/bp.py").open("a") as stream:
        stream.write("# edited\n")
    before = checkpoints(project), (project / AUDIT.format(1)).read_bytes()
    done = snakemake(project, "scorecard", "--cores", "1")
    assert done.returncode == 0, done.stdout
    assert not {"train_network", "audit_network"} & set(done.stdout.split())
    assert (checkpoints(project), (project / AUDIT.format(1)).read_bytes()) == before
    assert all((project / path).stat().st_size for path in FILES)
    rows = pd.read_csv(project / "results/scorecard.csv")
    audit = json.loads((project / AUDIT.format(1)).read_text())
    assert rows["verdict"].tolist() == ["reproduced", "not reproduced", "not run"] and rows["n"].tolist() == [1, 1, 0]
    assert rows["reproduced"][0] == str(audit["headline_acc"]) and rows["note"][0] == "1 of 2 seeds"
    assert (project / "results/scorecard.md").read_text().startswith("1 of 3 reproduced, 1 not reproduced, 1 not run;")
    assert planned(project, "scorecard") == {} == planned(project, "./results/scorecard.md")
    jobs = planned(project, "results/scorecard.md", "results/tidy/runs.csv")  # not alone: complete and up to date
    assert len(jobs["train_network"]) == len(jobs["audit_network"]) == 2 and "build_scorecard" in jobs


def test_reproducing_trains_what_is_missing_and_builds_the_scorecard_from_it(finished):
    said = (finished / "reproduce.log").read_text()
    done = dict(re.findall(r"^(\w+) +(\d+)$", said, re.MULTILINE))
    names = ("train_network", "audit_network", "build_scorecard", "draw_scorecard", "reproduce")
    assert {name: done[name] for name in names} == dict.fromkeys(names, "1") and done["total"] == "5"
    assert "results/scorecard.md" in said.partition("Results:")[2]
    rows = pd.read_csv(finished / "results/scorecard.csv")
    assert rows["n"].tolist() == [2, 2, 0] and rows["verdict"][2] == "not run"
    audits = [json.loads((finished / AUDIT.format(seed)).read_text()) for seed in (1, 2)]
    assert float(rows["reproduced"][0]) == pytest.approx(sum(audit["headline_acc"] for audit in audits) / 2)


def test_nothing_is_done_twice_by_whatever_name_it_is_called(finished):
    assert planned(finished, "reproduce") == {} == planned(finished, "scorecard")
    assert not {"train_network", "audit_network", *MADE} & set(planned(finished))


def test_the_default_target_includes_the_scorecard_where_the_configuration_has_its_experiments(begun):
    assert {*MADE, "manifest"} <= set(planned(begun))
    other = {"settings": {"tiny": CONFIG["settings"]["tiny"] | {"epochs": 2}}}  # of the name, but not the experiment
    write_config(begun, other, "other.yaml")
    jobs = planned(begun, config="other.yaml")
    assert "tidy_setting" in jobs and not {"manifest", *MADE} & set(jobs)


def test_the_manifest_and_the_files_say_where_the_scorecard_comes_from(finished):
    done = snakemake(finished, "results/MANIFEST.json", "--cores", "1")
    assert done.returncode == 0, done.stdout
    manifest = json.loads((finished / "results/MANIFEST.json").read_text())["artefacts"]
    assert set(manifest) == {path for path in FILES if "origin" not in path}
    inputs = manifest["results/scorecard.csv"]["inputs"]
    assert set(inputs) == {"reference/published.yaml", AUDIT.format(1), AUDIT.format(2)}
    assert manifest["results/figures/scorecard.pdf"]["inputs"] == {
        "results/scorecard.csv": manifest["results/scorecard.csv"]["sha256"]
    }
    assert manifest["results/scorecard.csv"]["sha256"].encode() in (finished / FILES[4]).read_bytes()


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"setting": "tiny"', "found no JSON"), (None, "missing spec; expected an audit as the workflow writes it")],
)
def test_an_audit_that_cannot_be_read_is_named(begun, tmp_path, text, words):
    project = Path(shutil.copytree(begun, tmp_path / "project"))
    path = project / AUDIT.format(1)
    audit = json.loads(path.read_text())
    del audit["spec"]
    path.write_text(text or json.dumps(audit))
    done = snakemake(project, "scorecard")
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert f"build_scorecard: {AUDIT.format(1)}: {words}" in done.stdout


def test_the_report_begins_with_the_scorecard(finished, tmp_path):
    done = snakemake(finished, "reproduce", "--report", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stdout
    page = (tmp_path / "report.html").read_text()
    assert "1 Scorecard" in page and all(Path(path).name in page for path in FILES if "origin" not in path)
    assert "Every number that the paper published" in page


def test_wrong_published_numbers_stop_with_one_message_before_any_job(finished, tmp_path):
    project = Path(shutil.copytree(finished, tmp_path / "project"))
    (project / "reference/published.yaml").write_text(yaml.safe_dump(PUBLISHED | {"entries": [{"n": 1}]}))
    done = snakemake(project, "-n")
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert "fa-audit: reference/published.yaml: entries.0: missing quantity, setting" in done.stdout
