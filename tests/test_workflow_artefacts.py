"""Figures, tables, manifest and report of a small grid: what redraws them, what they say of themselves."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from projects import ROOT, copy_sources, make_all, planned, snakemake, write_config

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SETTING = {
    "dataset": "digits",
    "architecture": {"name": "resmlp", "width": 16, "depth": 2},
    "epochs": 1,
    "seeds": [1],
    "runs": ["dfa"],
    "baselines": ["bp+frozen", "dfa+frozen"],
}
CONFIG = {
    "settings": {"one": SETTING, "two": SETTING | {"batch_size": 64}},
    "figures": {
        "audit_overview": {"settings": ["one"], "title": "The first"},
        "other": {"kind": "audit_overview", "settings": ["two"], "title": "The second"},
    },
    "tables": {"main_audit": {"settings": ["two"], "title": "The second"}},
}
ARTEFACTS = [
    *(f"results/figures/{name}.{kind}" for name in CONFIG["figures"] for kind in ("pdf", "png")),
    *(f"results/tables/main_audit.{kind}" for kind in ("csv", "md", "tex", "html")),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = copy_sources(tmp_path_factory.mktemp("artefacts") / "project")
    make_all(folder, CONFIG)
    return folder


@pytest.fixture
def project(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "project"))


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_manifest_has_the_contents_of_every_artefact_and_of_what_it_was_made_from(finished):
    manifest = json.loads((finished / "results/MANIFEST.json").read_text())
    assert sorted(manifest["artefacts"]) == sorted(ARTEFACTS)
    for path, entry in manifest["artefacts"].items():
        assert entry["sha256"] == digest(finished / path)
        setting = "one" if "audit_overview" in path else "two"
        assert {Path(name).parent.name for name in entry["inputs"]} == {setting}
        assert all(digest(finished / name) == found for name, found in entry["inputs"].items())
    assert {"python", "torch", "snakemake"} <= set(manifest["versions"])


def test_an_artefact_says_where_it_comes_from(finished):
    for name, folder in (("audit_overview", "figures"), ("other", "figures"), ("main_audit", "tables")):
        origin = json.loads((finished / f"results/{folder}/{name}.origin.json").read_text())
        endings = ("pdf", "png") if folder == "figures" else ("tex",)
        for ending in endings:
            content = (finished / f"results/{folder}/{name}.{ending}").read_bytes()
            for part in (origin["commit"], origin["spec"], *origin["inputs"].values()):
                assert part.encode() in content, (name, ending, part)


def test_another_specification_is_another_origin(finished):
    specs = [
        json.loads((finished / f"results/figures/{name}.origin.json").read_text())["spec"] for name in CONFIG["figures"]
    ]
    assert len(set(specs)) == 2


def test_two_builds_give_the_same_bytes_although_the_second_training_took_longer(project):
    before = {path: digest(project / path) for path in [*ARTEFACTS, "results/MANIFEST.json"]}
    for path in project.glob("results/audits/*/dfa/seed1.json"):
        audit = json.loads(path.read_text())
        path.write_text(json.dumps(audit | {"seconds": 2 * audit["seconds"], "device": "cpu (another)"}))
    for path in before:
        (project / path).unlink()
    done = snakemake(project, "--cores", "1")
    assert done.returncode == 0, done.stdout
    assert {path: digest(project / path) for path in before} == before


def test_a_changed_style_redraws_figures_and_trains_nothing(project):
    with (project / "src/fa_audit/results/figures/style.py").open("a") as stream:
        stream.write("# edited\n")
    jobs = planned(project)
    assert jobs.pop("manifest")
    assert jobs == {"draw_figure": ["figure=audit_overview", "figure=other"]}


def test_a_changed_audit_redraws_what_reads_it_and_nothing_else(project):
    path = project / "results/audits/two/dfa/seed1.json"
    audit = json.loads(path.read_text())
    path.write_text(json.dumps(audit | {"headline_acc": 0.5}))
    jobs = planned(project)
    assert jobs["tidy_setting"] == ["setting=two"] and set(jobs) <= {
        "tidy_setting", "tidy", "draw_figure", "build_table", "manifest",
    }  # fmt: skip
    assert jobs["draw_figure"] == ["figure=other"] and jobs["build_table"] == ["table=main_audit"]


def test_a_single_figure_trains_what_it_needs_and_no_more(tmp_path):
    folder = copy_sources(tmp_path / "project")
    write_config(folder, CONFIG)
    jobs = planned(folder, "results/figures/other.pdf")
    assert {name.split(",")[0] for name in jobs["train_network"]} == {"setting=two"}
    assert jobs["draw_figure"] == ["figure=other"] and "build_table" not in jobs


def arrows(text):
    """The edges of a mermaid graph, by the names of its nodes."""
    names = dict(re.findall(r"(id\d+)\[(\w+)\]", text))
    return {(names[start], names[end]) for start, end in re.findall(r"(id\d+) --> (id\d+)", text)}


def test_the_picture_in_the_readme_is_the_pipeline(tmp_path):
    drawn = snakemake(copy_sources(tmp_path / "project"), "--rulegraph", "mermaid-js", config=None)
    assert drawn.returncode == 0 and len(arrows(drawn.stdout)) > 20
    assert arrows((ROOT / "README.md").read_text()) == arrows(drawn.stdout)


@pytest.fixture(scope="module")
def report(finished, tmp_path_factory):
    """The report, unpacked."""
    folder = tmp_path_factory.mktemp("report")
    done = snakemake(finished, "--report", str(folder / "report.zip"))
    assert done.returncode == 0, done.stdout
    shutil.unpack_archive(folder / "report.zip", folder)
    (page,) = folder.rglob("report.html")
    return page


def test_the_report_holds_every_artefact_with_its_caption(report):
    there = {path.name for path in report.parent.rglob("*")}
    assert {Path(path).name for path in [*ARTEFACTS, "MANIFEST.json"]} <= there
    text = " ".join(report.read_text().split())
    for words in ("audits every one of them", "D1 fires above its limit", "The first", "2 Figures", "3 Tables"):
        assert words in text, words


@pytest.mark.skipif(not CHROMIUM, reason="needs chromium on the PATH")
def test_the_report_opens_in_a_browser(report, tmp_path):
    options = ["--headless", "--no-sandbox", "--virtual-time-budget=20000", f"--user-data-dir={tmp_path}", "--dump-dom"]
    done = subprocess.run([CHROMIUM, *options, report.as_uri()], capture_output=True, text=True, timeout=120)
    assert "audits every one of them" in " ".join(done.stdout.split()) and "2 Figures" in done.stdout, done.stderr


def test_a_kind_without_its_caption_is_named_before_anything_starts(tmp_path):
    folder = copy_sources(tmp_path / "project")
    write_config(folder, CONFIG)
    (folder / "report/captions/audit_overview.rst").unlink()
    done = snakemake(folder)
    assert done.returncode == 1 and "Traceback" not in done.stdout and not (folder / "results").exists()
    assert "no caption of 'audit_overview' for the report: write " in done.stdout
