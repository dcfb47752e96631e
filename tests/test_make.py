"""The Makefile's installation into .venv, with a Python that only notes what it is asked to do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from projects import ROOT

from fa_audit.core.files import exclusive

# As python -m venv and pip: notes the command in `calls`; fails where a file named `fail-WORD`
# stands.
PYTHON = """#!/bin/sh
case "$*" in
  --version) echo "Python $(cat "$HOME/version")"; exit ;;
  *version_info*) grep -q "3.1[1-9]" "$HOME/version"; exit ;;
  *venv*) word=venv; mkdir -p .venv/bin; rm -f .venv/ready; cp "$HOME/python" .venv/bin/python ;;
  *pip*) word=pip; sleep 0.3 ;;
esac
echo "$word" >> "$HOME/calls"
[ ! -e "$HOME/fail-$word" ] || { echo "ERROR: no room for $word"; exit 1; }
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository as far as the installation reads it, with a space in its path, and the Python
    beside it.
    """
    root = tmp_path / "a repository"
    root.mkdir()
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "version").write_text("3.11.7")
    return root


def start(root: Path, *arguments: str) -> subprocess.Popen[str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    command = ["make", "--no-print-directory", "-C", str(root), *(arguments or ["bootstrap"])]
    return subprocess.Popen([*command, f"PYTHON={root.parent / 'python'}"], env=clean | {"HOME": str(root.parent)},
                            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def installed(root: Path, *arguments: str) -> tuple[list[str], list[str]]:
    """What an installation did since the last one, and the lines of fa-audit's own on the terminal."""
    said = start(root, *arguments).communicate()[1]
    calls = root.parent / "calls"
    done = calls.read_text().split() if calls.exists() else []
    calls.unlink(missing_ok=True)
    return done, [line for line in said.splitlines() if not line.startswith("make")]


def test_it_installs_once_and_again_when_pins_place_or_python_change(repository):
    done, said = installed(repository)
    assert done == ["venv", "pip"] and len(said) == 1 and "several minutes" in said[0]
    assert installed(repository) == ([], [])
    (repository / "constraints.txt").write_text("numpy==2.0.0\n")
    assert installed(repository)[0] == ["pip"]
    moved = repository.rename(repository.with_name("moved"))
    assert installed(moved)[0] == ["venv", "pip"]
    (moved.parent / "version").write_text("3.12.1")
    assert installed(moved)[0] == ["venv", "pip"] and installed(moved)[0] == []


def test_the_demo_needs_fewer_packages_which_the_tests_add_to(repository):
    assert installed(repository, "demo")[0] == ["venv", "pip"]
    assert installed(repository, "demo")[0] == []
    assert installed(repository, "bootstrap")[0] == ["pip"]
    assert installed(repository, "demo")[0] == []


@pytest.mark.skipif(shutil.which("flock") is None, reason="flock is not installed")
def test_packages_stay_while_a_workflow_is_at_work_in_a_moved_clone(repository):
    assert installed(repository)[0] == ["venv", "pip"]
    moved = repository.rename(repository.with_name("moved"))
    with exclusive(moved / "results/.lock"):
        done, (line,) = installed(moved)
    assert done == [] and f"(process {os.getpid()} on " in line and "wait for it or stop it" in line
    assert installed(moved)[0] == ["venv", "pip"]


@pytest.mark.parametrize("word", ["venv", "pip"])
def test_what_fails_is_one_line_with_the_log_and_begins_again(repository, word):
    (repository.parent / f"fail-{word}").touch()
    done, (_, line) = installed(repository)
    assert done[-1] == word and f"ERROR: no room for {word} (log: .venv.log)" in line
    (repository.parent / f"fail-{word}").unlink()
    assert installed(repository)[0] == ["venv", "pip"]
