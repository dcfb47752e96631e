"""What can be seen of a folder before any job starts."""

import os
import sys
from pathlib import Path

import pytest
from projects import ROOT

sys.path.insert(0, str(ROOT / "workflow_scripts"))

from _folder import check_results

from fa_audit.errors import AuditError


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
    check_results(to_write=True)


def test_a_fresh_clone_is_fine(folder):
    (folder / ".snakemake").rmdir()
    check_results(to_write=True)


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
        check_results(to_write=True)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_stands_in_the_place_of_a_file_is_named(folder, make):
    path = "results/checkpoints/tiny/bp/seed1.safetensors"
    make(folder / path)
    with pytest.raises(AuditError, match=f"^{path}: found a folder, or no ordinary file; expected a file. Move it"):
        check_results(to_write=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_is_named(folder):
    (folder / "results/README.md").chmod(0)
    with pytest.raises(AuditError, match=r"^results/README.md: cannot be read. Make it readable"):
        check_results(to_write=True)
