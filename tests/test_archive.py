"""Results packed with `make archive` and unpacked in a clone elsewhere: nothing to do, and every file verifies."""

import json
import shutil
import subprocess
import tarfile

import pytest
import yaml
from projects import PUBLISHED, ROOT, copy_sources, own_library, planned, python

from fa_audit.core.files import exclusive
from fa_audit.experiments.paths import RunKey

TABLE, INPUT, SUMS = "results/tables/inventory.md", "results/tidy/resmlp/runs.csv", "results/SHA256SUMS"
AUDIT, OTHER = "results/audits/student_mlp/ep/seed1.json", "results/audits/resmlp/dfa/seed1.json"
ORIGIN, DATA = "results/tables/inventory.origin.json", ("digits", "synthetic_teacher")
LOG = "results/logs/train_network/student_mlp/ep/seed1.log"


def archive(folder, *arguments):
    return python(folder, "tools/archive.py", *(arguments or ("--configfile", "tiny.yaml")), **own_library(folder))


def verify(folder):
    return python(folder, "-m", "fa_audit.cli", "verify", **own_library(folder))


@pytest.fixture(scope="module")
def packed(everything, tmp_path_factory):
    """The archive of a finished project, in which a killed process and a training have left something."""
    folder = shutil.copytree(everything, tmp_path_factory.mktemp("archive") / "project")
    shutil.copytree(ROOT / "tools", folder / "tools")
    (folder / "results/tables/.inventory.md.killed.part.md").touch()
    (folder / "results/resume/tiny").mkdir(parents=True, exist_ok=True)
    (folder / "results/resume/tiny/seed1.safetensors").touch()
    done = archive(folder)
    assert done.returncode == 0 and "make verify" in done.stdout, done.stderr
    return folder / "results.tar"


@pytest.fixture
def project(packed, tmp_path):
    return shutil.copytree(packed.parent, tmp_path / "project")


def unpacked(packed, folder, *options):
    copy_sources(folder)
    (folder / "reference/published.yaml").write_text(yaml.safe_dump(PUBLISHED))
    subprocess.run(["tar", *options, "-xf", packed], cwd=folder, stderr=subprocess.DEVNULL)
    return folder


@pytest.mark.parametrize("options", [(), ("--touch",)], ids=["old times", "new times"])
def test_unpacked_in_a_clone_elsewhere_nothing_reruns_and_everything_verifies(packed, tmp_path, options):
    folder = unpacked(packed, tmp_path / "another place", *options)
    assert planned(folder) == {}
    with tarfile.open(packed) as tar:
        names = set(tar.getnames()) - {SUMS} | {"reference/published.yaml"}  # on which the scorecard rests
    assert verify(folder).stdout == f"{len(names)} files, all as recorded\n"
    assert subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=folder).returncode == 0
    assert {name.split("/")[1] for name in names if "/" in name} >= {"audits", "checkpoints", "data", "metadata"}


def test_what_is_altered_or_missing_is_named_with_or_without_the_archives_list(packed, tmp_path):
    folder = unpacked(packed, tmp_path / "clone")
    (folder / TABLE).write_text("better\n")
    (folder / INPUT).unlink()
    for name in (AUDIT, LOG):
        (folder / name).write_text((folder / name).read_text() + " ")
    for names in ([INPUT, AUDIT, TABLE, LOG], [INPUT, AUDIT, TABLE]):
        done = verify(folder)
        *lines, summary = done.stdout.splitlines()
        assert done.returncode == 1 and f"{len(names)} not as recorded" in summary
        assert sorted(line.partition(": found ")[0] for line in lines) == sorted(names)
        (folder / SUMS).unlink(missing_ok=True)
    shutil.rmtree(folder / "results")
    assert "found neither results/MANIFEST.json nor results/SHA256SUMS" in verify(folder).stderr


@pytest.mark.slow
def test_without_a_list_files_are_compared_with_what_sidecars_tables_and_the_manifest_record(project):
    """Files cut short, and two that were swapped: each has the form of a sound one, or is read by nothing else."""
    (project / SUMS).unlink()
    network, data = RunKey("resmlp", "dfa", 1), [f"results/data/{name}.safetensors" for name in DATA]
    cut = [network.path("checkpoints", "safetensors"), network.path("trajectories", "csv"), ORIGIN]
    for path in (project / name for name in cut):
        path.write_bytes(path.read_bytes()[:-20])
    for one, other in ((AUDIT, OTHER), data):
        (project / one).rename(project / "moved")
        (project / other).rename(project / one)
        (project / "moved").rename(project / other)
    done = verify(project)
    named = {line.partition(": found ")[0] for line in done.stdout.splitlines()[:-1]}
    assert done.returncode == 1 and named >= {*cut, AUDIT, OTHER, *data}, done


@pytest.mark.slow
def test_an_archive_names_no_user_holds_no_unfinished_work_and_follows_links(packed, project, tmp_path):
    with tarfile.open(packed) as tar:
        members = tar.getmembers()
    assert {member.name.split("/")[0] for member in members} == {"results", ".snakemake", "tiny.yaml"}
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}
    assert not any(".part" in member.name or member.name.startswith("results/resume") for member in members)
    for name in ("results/checkpoints", ".snakemake/metadata"):
        place = tmp_path / "scratch" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(project / name, place)
        (project / name).symlink_to(place)
    assert archive(project).returncode == 0
    assert (project / "results.tar").read_bytes() == packed.read_bytes()


@pytest.mark.slow
def test_what_cannot_be_packed_is_refused_with_one_line(project):
    def assert_refused(words, *arguments):
        (line,) = archive(project, *arguments).stderr.splitlines()
        assert line.startswith("fa-audit: ") and words in line

    (project / "results.tar").unlink()
    assert_refused("found 'none.yaml'; expected the path of a file in this folder", "--configfile", "none.yaml")
    assert_refused("in this folder", "--configfile", "/etc/hostname")
    assert_refused("outside results/", "results/all.tar")
    with exclusive(project / "results/.lock"):
        assert_refused("another workflow")
    manifest = project / "results/MANIFEST.json"
    content = json.loads(manifest.read_text())
    content["artefacts"][TABLE]["sha256"] = 64 * "0"
    manifest.write_text(json.dumps(content))
    assert_refused(f"{TABLE}: found SHA-256")
    (project / TABLE).unlink()
    assert_refused("incomplete or stale")
    assert not (project / "results.tar").exists()


@pytest.mark.slow
def test_a_damaged_list_is_one_line(project):
    """A digest that is none, a manifest that is none, a sidecar that is none."""
    for name, content in (
        (SUMS, "short  results/x\n"),
        ("results/MANIFEST.json", '{"artefacts": {"a": {}}}'),
        ("results/MANIFEST.json", "{"),
        (AUDIT, "[]"),
    ):
        before = (project / name).read_bytes()
        (project / name).write_text(content)
        done = verify(project)
        assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done
        (project / name).write_bytes(before)
