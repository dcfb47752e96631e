"""What can be seen of a folder before any job starts."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from projects import ROOT

sys.path.insert(0, str(ROOT / "workflow_scripts"))

from _folder import check_places, check_writable

from fa_audit.core.errors import AuditError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in ("results/checkpoints/tiny/bp", "results/tables", ".snakemake"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "results/README.md").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_and_folders_in_their_places_are_fine(folder):
    (folder / "results/checkpoints/tiny/bp/seed1.safetensors").touch()
    (folder / "results/figures").symlink_to(folder / "results/tables")
    (folder / "results/tables/gone.csv").symlink_to("nothing")  # Snakemake takes it as missing
    check_places()
    check_writable()


def test_a_fresh_clone_is_fine(folder):
    (folder / ".snakemake").rmdir()
    check_places()
    check_writable()


@pytest.mark.parametrize("name", ["results", ".snakemake", "results/tables"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Path.touch, "found a file; expected a folder. Move it away."),
        (lambda path: path.symlink_to("not mounted"), "found a link to not mounted, where nothing is; mount it"),
    ],
)
def test_what_stands_in_the_place_of_a_folder_is_named(folder, name, make, words):
    (folder / name).rename(folder / "elsewhere")
    make(folder / name)
    with pytest.raises(AuditError, match=f"^{name}: {words}"):
        check_places()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_stands_in_the_place_of_a_file_is_named(folder, make):
    path = "results/checkpoints/tiny/bp/seed1.safetensors"
    make(folder / path)
    with pytest.raises(AuditError, match=f"^{path}: found a folder, or no ordinary file; expected a file. Move it"):
        check_writable()


def test_linked_results_are_looked_at_too(folder):
    (folder / "results/checkpoints").rename(folder / "scratch")
    (folder / "results/checkpoints").symlink_to(folder / "scratch")
    (folder / "scratch/tiny/bp/seed1.json").mkdir()
    with pytest.raises(AuditError, match=r"^results/checkpoints/tiny/bp/seed1.json: found a folder"):
        check_writable()


AS_NOBODY = """import os, sys
sys.path[:0] = sys.argv[1:3]
import _folder
from fa_audit.core.errors import AuditError
if os.geteuid() == 0:
    os.setuid(65534)
try:
    getattr(_folder, sys.argv[3])()
except AuditError as error:
    print(error)
"""


def as_nobody(check):
    """What a check says, in the working folder, to a user who is not root."""
    call = [sys.executable, "-c", AS_NOBODY, ROOT / "src", ROOT / "workflow_scripts", check.__name__]
    return subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def open_folder(folder, monkeypatch):
    """The folder in a place where every user comes."""
    with tempfile.TemporaryDirectory() as place:
        if not all(path.stat().st_mode & 1 for path in Path(place).resolve().parents):
            pytest.skip("temporary files of this user are nobody else's")
        opened = shutil.copytree(folder, Path(place).resolve() / "project")
        for path in (Path(place), opened, *opened.rglob("*")):
            path.chmod(0o777)
        monkeypatch.chdir(opened)
        yield opened


def test_a_result_that_cannot_be_read_is_named_and_nobody_s_other_files(open_folder):
    for name in ("results/README.md", "results/checkpoints/tiny/.seed1.json.1.part.json"):
        (open_folder / name).touch()
        (open_folder / name).chmod(0)
    assert as_nobody(check_writable) == ""
    (open_folder / "results/checkpoints/tiny/bp/seed1.json").touch(0)
    assert as_nobody(check_writable).startswith("results/checkpoints/tiny/bp/seed1.json: cannot be read. Make it")


def test_folders_that_cannot_be_read_or_written_to_are_named(open_folder):
    (open_folder / "results/tables").chmod(0o555)
    assert as_nobody(check_places) == ""
    assert as_nobody(check_writable).startswith(f"{open_folder}/results/tables: cannot be written to")
    (open_folder / "results").chmod(0)
    assert as_nobody(check_places).startswith("results: cannot be read. Make it readable")
    (open_folder / "results").chmod(0o777)
