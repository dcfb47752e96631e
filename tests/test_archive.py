"""Results packed with `make archive` and unpacked in a clone elsewhere: nothing to do, and every artefact verifies."""

import base64
import importlib.util
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tarfile

import pytest
import torch
from projects import ROOT, copy_sources, make_all, planned, snakemake, write_config
from safetensors.torch import save_file

from fa_audit.core.files import exclusive

CONFIG = {
    "settings": {
        "tiny": {
            "dataset": "digits",
            "architecture": {"name": "resmlp", "width": 16, "depth": 2},
            "epochs": 1,
            "seeds": [1],
            "runs": ["dfa+frozen"],
            "baselines": [],
        }
    },
    "tables": {"inventory": {"settings": ["tiny"], "title": "tiny"}},
}
TABLE, INPUT = "results/tables/inventory.md", "results/tidy/tiny/runs.csv"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def clone(folder):
    """A checkout with its environment."""
    copy_sources(folder)
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copyfile(ROOT / name, folder / name)
    return with_environment(folder)


def with_environment(folder):
    """The folder with an environment that make takes for complete, and that is the one of these tests."""
    spec = importlib.util.spec_from_file_location("bootstrap", folder / "tools/bootstrap.py")
    bootstrap = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bootstrap)
    (folder / ".venv/bin").mkdir(parents=True, exist_ok=True)
    (folder / bootstrap.READY).write_text(bootstrap.stamp(folder))
    for name, arguments in (("python", ""), ("fa-audit", "-m fa_audit.cli")):
        script = folder / ".venv/bin" / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH=src exec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)
    return folder


def make(folder, *arguments, **options):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "SNAKEMAKE"))}
    command = ["make", "--no-print-directory", f"PYTHON={sys.executable}", *arguments]
    return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, **options)


def refused(done):
    """The one line of a refusal; make adds one of its own."""
    assert done.returncode != 0, done.stdout
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert line.startswith("fa-audit: ")
    return line


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = clone(tmp_path_factory.mktemp("archive") / "project")
    make_all(folder, CONFIG)
    (folder / "results/tables/.inventory.md.killed.part.md").touch()
    (folder / "results/resume/tiny").mkdir(parents=True, exist_ok=True)
    (folder / "results/resume/tiny/seed1.safetensors").touch()
    return folder


@pytest.fixture
def project(finished, tmp_path):
    return with_environment(
        shutil.copytree(finished, tmp_path / "project", ignore=shutil.ignore_patterns("results.tar"))
    )


@pytest.fixture(scope="module")
def packed(finished):
    done = make(finished, "archive", "CONFIG=tiny.yaml")
    assert done.returncode == 0, done.stderr
    assert "make verify" in done.stdout
    return finished / "results.tar"


def unpacked(packed, folder, *options):
    subprocess.run(["tar", *options, "-xf", packed], cwd=clone(folder), check=True)
    return folder


@pytest.mark.parametrize("options", [(), ("--touch",)], ids=["old times", "new times"])
def test_unpacked_in_a_clone_elsewhere_there_is_nothing_to_do_and_everything_verifies(packed, tmp_path, options):
    folder = unpacked(packed, tmp_path / "another place", *options)
    assert planned(folder) == {}
    done = make(folder, "verify")
    assert done.returncode == 0, done.stdout
    with tarfile.open(packed) as tar:
        count = len(tar.getnames()) - 1  # without the list itself
    lists = "results/MANIFEST.json and results/ARCHIVE.json"
    assert done.stdout == f"{lists}: 4 artefacts, 4 inputs, {count} archived files; all as recorded\n"
    with (folder / "src/fa_audit/audit/verdicts.py").open("a") as stream:
        stream.write("# edited\n")
    jobs = planned(folder)
    assert "audit_network" in jobs and "train_network" not in jobs


def test_what_is_not_as_recorded_is_named_with_what_to_do(packed, tmp_path):
    folder = unpacked(packed, tmp_path / "clone")
    with (folder / TABLE).open("a") as stream:
        stream.write("better\n")
    (folder / INPUT).unlink()
    done = make(folder, "verify")
    altered, missing, summary = done.stdout.splitlines()[-3:]
    assert done.returncode != 0 and summary.endswith("2 not as recorded")
    recorded = json.loads((folder / "results/MANIFEST.json").read_text())["artefacts"][TABLE]
    assert altered.startswith(f"{TABLE}: found SHA-256 ") and f"expected SHA-256 {recorded['sha256']}" in altered
    assert missing.startswith(f"{INPUT}: found no file; expected SHA-256 {recorded['inputs'][INPUT]}")
    assert altered.endswith(f"snakemake --force {TABLE} and the --configfile that it was made with.")


def test_every_file_of_an_archive_is_compared(packed, tmp_path):
    folder = unpacked(packed, tmp_path / "clone")
    with tarfile.open(packed) as tar:
        names = sorted(set(tar.getnames()) - {"results/ARCHIVE.json", "results/MANIFEST.json"})
    assert {name.split("/")[1] for name in names if "/" in name} >= {
        "audits",
        "checkpoints",
        "data",
        "logs",
        "metadata",
    }
    for name in names:
        (folder / name).write_bytes(b"altered")
    done = make(folder, "verify")
    assert {line.partition(":")[0] for line in done.stdout.splitlines()[:-1]} == set(names)


def test_half_an_archive_does_not_verify(packed, tmp_path):
    folder = clone(tmp_path / "clone")
    (tmp_path / "half.tar").write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
    subprocess.run(["tar", "-xf", tmp_path / "half.tar"], cwd=folder, stderr=subprocess.DEVNULL)
    assert make(folder, "verify").returncode != 0


def test_an_archive_names_nobody_and_nothing_outside_and_holds_no_unfinished_work(packed):
    with tarfile.open(packed) as tar:
        members = tar.getmembers()
    names = [member.name for member in members]
    assert {name.split("/")[0] for name in names} == {"results", ".snakemake", "tiny.yaml"}
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}
    assert {TABLE, INPUT, "results/checkpoints/tiny/dfa+frozen/seed1.safetensors"} <= set(names)
    assert not any(".part" in name or name.startswith("results/resume") for name in names)


def test_the_same_results_give_the_same_bytes(packed, project):
    assert make(project, "archive", "CONFIG=tiny.yaml", "ARCHIVE=elsewhere/again.tar").returncode == 0
    assert (project / "elsewhere/again.tar").read_bytes() == packed.read_bytes()


def test_linked_folders_and_private_files_give_the_same_bytes(packed, project, tmp_path):
    for name in ("results/checkpoints", "results/data", ".snakemake/metadata"):
        place = tmp_path / "scratch" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(project / name, place)
        (project / name).symlink_to(place)
    (project / "results/tables/again").symlink_to(project / "results")
    for path in [*project.rglob("*.csv"), *tmp_path.glob("scratch/results/**/*.*")]:
        path.chmod(0o600)
    done = make(project, "archive", "CONFIG=tiny.yaml", preexec_fn=lambda: os.umask(0o077))
    assert done.returncode == 0, done.stderr
    assert (project / "results.tar").read_bytes() == packed.read_bytes()


def test_a_link_that_leads_nowhere_is_refused(project, tmp_path):
    shutil.rmtree(project / "results/checkpoints")
    (project / "results/checkpoints").symlink_to(tmp_path / "not mounted")
    line = refused(make(project, "archive", "CONFIG=tiny.yaml"))
    assert f"results/checkpoints: found a link to {tmp_path}/not mounted, where nothing is" in line


def record_of(folder, path):
    return folder / ".snakemake/metadata" / base64.urlsafe_b64encode(path.encode()).decode()


def test_a_result_without_its_record_is_refused_until_it_has_one(packed, project):
    audit = "results/audits/tiny/dfa+frozen/seed1.json"
    record = record_of(project, audit)
    whole = record.read_text()
    record.write_text(whole[:100])
    assert f"{record.relative_to(project)}: found no JSON" in refused(make(project, "archive", "CONFIG=tiny.yaml"))
    record.unlink()
    line = refused(make(project, "archive", "CONFIG=tiny.yaml"))
    assert f"{audit}: no record of how snakemake made it" in line
    cure = shlex.split(line.partition("with snakemake ")[2].partition(";")[0])
    done = snakemake(project, *cure, "--cores", "1", config=None)
    assert done.returncode == 0, done.stdout
    assert make(project, "archive", "CONFIG=tiny.yaml").returncode == 0
    (project / "results/notes.txt").touch()
    assert "results/notes.txt: no record" in refused(make(project, "archive", "CONFIG=tiny.yaml"))


def test_what_snakemake_made_outside_results_is_refused(project):
    (project / "elsewhere.txt").touch()
    record_of(project, "elsewhere.txt").write_text("{}")
    assert "elsewhere.txt: snakemake made it outside results/" in refused(make(project, "archive", "CONFIG=tiny.yaml"))


MODEL = """import torch


def make():
    block = lambda: torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    return torch.nn.Sequential(torch.nn.Flatten(), block(), block(), torch.nn.Linear(64, 10))
"""


def test_models_alone_are_packed_with_the_files_that_their_configuration_names(tmp_path):
    folder = clone(tmp_path / "project")
    (folder / "mine").mkdir()
    (folder / "mine/__init__.py").touch()
    (folder / "mine/net.py").write_text(MODEL)
    weights = {"1.0.weight": (64, 64), "1.0.bias": (64,), "2.0.weight": (64, 64), "2.0.bias": (64,)}
    state = {name: torch.eye(*shape) if len(shape) == 2 else torch.zeros(shape) for name, shape in weights.items()}
    save_file(state | {"3.weight": torch.ones(10, 64), "3.bias": torch.zeros(10)}, folder / "w.safetensors")
    model = {"dataset": "digits", "model": "mine.net:make", "blocks": ["1", "2"], "reads": "all features", "batches": 1}
    outside = str(shutil.copyfile(folder / "w.safetensors", tmp_path / "outside.safetensors"))
    models = {"own": model | {"weights": "w.safetensors"}, "other": model | {"weights": outside}}
    write_config(folder, {"models": models})
    done = snakemake(folder, "--cores", "1")
    assert done.returncode == 0, done.stdout
    said = make(folder, "archive", "CONFIG=tiny.yaml")
    assert said.returncode == 0, said.stderr
    assert "tiny.yaml names: mine/__init__.py, mine/net.py, w.safetensors\n" in said.stdout
    assert said.stdout.endswith(f"under the same names: {outside}\n")
    copy = unpacked(folder / "results.tar", tmp_path / "copy")
    assert planned(copy) == {} and make(copy, "verify").stdout.startswith("results/ARCHIVE.json: ")


def test_incomplete_or_altered_results_are_refused(project):
    with (project / TABLE).open("a") as stream:
        stream.write("better\n")
    assert f"{TABLE}: found SHA-256" in refused(make(project, "archive", "CONFIG=tiny.yaml"))
    (project / TABLE).unlink()
    line = refused(make(project, "archive", "CONFIG=tiny.yaml"))
    assert "results of tiny.yaml are incomplete or stale: 2 jobs to do" in line
    assert not (project / "results.tar").exists()


def test_an_altered_checkpoint_that_no_job_reads_is_refused(project):
    path = project / "results/checkpoints/tiny/dfa+frozen/seed1.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert "jobs to do" in refused(make(project, "archive", "CONFIG=tiny.yaml"))
    assert snakemake(project, "--touch", "--forcerun", "audit_network").returncode == 0
    line = refused(make(project, "archive", "CONFIG=tiny.yaml"))
    assert f"{path.relative_to(project)}: altered, or of another training" in line


def test_results_at_which_a_workflow_works_are_refused(project):
    with exclusive(project / ".snakemake/fa-audit.lock"):
        assert "another snakemake" in refused(make(project, "archive", "CONFIG=tiny.yaml"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("CONFIG=tiny.yaml",), "nothing to pack"),
        (("CONFIG=none.yaml",), "found 'none.yaml'; expected a file in "),
        (("CONFIG=/etc/hostname",), "relative to it"),
        (("CONFIG=tiny.yaml", "ARCHIVE=results/all.tar"), "outside results/"),
        (("CONFIG=tiny.yaml", "ARCHIVE=results.zip"), "ends in .tar"),
    ],
)
def test_what_cannot_be_packed_is_refused_with_one_line(tmp_path, arguments, words):
    folder = clone(tmp_path / "project")
    write_config(folder, CONFIG)
    assert words in refused(make(folder, "archive", *arguments))


def test_an_archive_that_does_not_fit_leaves_the_earlier_one(project):
    (project / "results.tar").write_bytes(b"earlier")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    assert "File too large" in refused(make(project, "archive", "CONFIG=tiny.yaml", preexec_fn=small_files))
    assert (project / "results.tar").read_bytes() == b"earlier"
    assert not list(project.glob(".results.tar*"))
