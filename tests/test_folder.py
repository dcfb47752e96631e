"""What is checked of a folder before any job starts."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from projects import ROOT

sys.path.insert(0, str(ROOT / "workflow_scripts"))

from _folder import check_data, check_room, check_writable

from fa_audit.core.errors import AuditError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in ("results/checkpoints/tiny/bp", "results/tables", ".snakemake"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_with_results_and_a_fresh_clone_are_fine(folder):
    for _ in range(2):
        check_writable()
        check_room()
        check_data(["digits"])
        shutil.rmtree(".snakemake", ignore_errors=True)
        shutil.rmtree("results", ignore_errors=True)


@pytest.mark.parametrize("name", ["results", ".snakemake"])
@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("not mounted")])
def test_what_stands_in_the_place_of_a_folder_is_named(folder, name, make):
    (folder / name).rename(folder / "elsewhere")
    make(folder / name)
    with pytest.raises(AuditError, match=f"^{name}: found no folder .*Move it away"):
        check_writable()


AS_NOBODY = """import os, sys
sys.path[:0] = sys.argv[1:]
import _folder
from fa_audit.core.errors import AuditError
if os.geteuid() == 0:
    os.setuid(65534)
try:
    _folder.check_writable()
except AuditError as error:
    print(error)
"""


@pytest.mark.parametrize(("name", "mode"), [("results/tables", 0o555), ("results", 0)])
def test_folders_that_cannot_be_read_or_written_to_are_named(folder, name, mode):
    with tempfile.TemporaryDirectory() as place:
        if not all(path.stat().st_mode & 1 for path in Path(place).resolve().parents):
            pytest.skip("temporary files of this user are nobody else's")
        opened = shutil.copytree(folder, Path(place).resolve() / "project")
        for path in (Path(place), opened, *opened.rglob("*")):
            path.chmod(0o777)
        os.chmod(opened / name, mode)
        call = [sys.executable, "-c", AS_NOBODY, ROOT / "src", ROOT / "workflow_scripts"]
        said = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True, cwd=opened).stdout
        os.chmod(opened / name, 0o777)
    assert said.startswith(f"{opened / name}: cannot be written to, so no job was started")
