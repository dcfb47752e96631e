"""What is checked of a folder before any job starts."""

import shutil
from pathlib import Path

import pytest

from fa_audit.core.errors import AuditError
from fa_audit.core.folder import check_room, check_writable

ROOTS = ("results", ".snakemake")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in ("results/checkpoints/tiny/bp", "results/tables", ".snakemake"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_with_results_and_a_fresh_clone_are_fine(folder):
    for _ in range(2):
        check_writable(ROOTS)
        check_room(ROOTS)
        shutil.rmtree(".snakemake", ignore_errors=True)
        shutil.rmtree("results", ignore_errors=True)


@pytest.mark.parametrize("name", ROOTS)
@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("not mounted")])
def test_what_stands_in_the_place_of_a_folder_is_named(folder, name, make):
    (folder / name).rename(folder / "elsewhere")
    make(folder / name)
    with pytest.raises(AuditError, match=f"^{name}: found no folder .*Move it away"):
        check_writable(ROOTS)
