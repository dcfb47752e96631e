"""tools/bootstrap.py and the Makefile: one clear line for each trouble, and no more work than the stamp asks for."""

import ast
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tools" / "bootstrap.py"
READY = ".venv/.fa-audit-ready"


class Recorder:
    """Takes the place of `bootstrap.run`: notes what would run, and fails where it is told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failing: set[str] = set()
        self.log = ""

    def __call__(self, command: list[str], root: Path) -> int:
        call = next(name for name in ("venv", "--version", "install") if name in command)
        self.calls.append(call)
        if call == "venv":
            (root / ".venv" / "bin").mkdir()
            (root / ".venv" / "bin" / "python").touch()
        (root / ".venv" / "install.log").write_text(self.log)
        return int(call in self.failing)

    def taken(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, on a machine with every module and enough disk."""
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=9e9))
    return module


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository as far as the script looks at it, with a space in its path."""
    root = tmp_path / "a repository"
    root.mkdir()
    for name in ("constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    return root


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def installed(bootstrap: ModuleType, repository: Path, recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> Path:
    """The repository after a first installation."""
    assert bootstrap.main(repository, recorder) == 0
    assert recorder.taken() == ["venv", "install"]
    assert "several minutes, about 6 GB" in capsys.readouterr().err
    return repository


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_an_old_python_can_parse_the_script() -> None:
    assert ast.parse(SCRIPT.read_text(), feature_version=(3, 6)).body


@pytest.mark.parametrize("version", [(3, 6, 15), (3, 10, 13)])
def test_old_python(bootstrap, repository, recorder, monkeypatch, capsys, version) -> None:
    monkeypatch.setattr(bootstrap.sys, "version_info", version)
    assert bootstrap.main(repository, recorder) == 1
    line = one_line(capsys)
    assert f"found Python {'.'.join(map(str, version))}, needed is 3.11" in line
    assert "make PYTHON=python3.12 demo" in line
    assert recorder.calls == []


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 1), (4, 0, 0)])
def test_new_enough_python(bootstrap, version) -> None:
    assert bootstrap.check_python(version) is None


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_missing_module(bootstrap, repository, recorder, monkeypatch, capsys, module) -> None:
    monkeypatch.setattr(bootstrap, "find_spec", lambda name: None if name == module else object())
    assert bootstrap.main(repository, recorder) == 1
    line = one_line(capsys)
    assert f"lacks {module}" in line
    assert "python3-venv" in line
    assert recorder.calls == []


def test_little_disk(bootstrap, repository, recorder, monkeypatch, capsys) -> None:
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda path: SimpleNamespace(free=7.9e9))
    assert bootstrap.main(repository, recorder) == 1
    assert "7.9 GB of disk are free" in one_line(capsys)
    assert recorder.calls == []


def test_little_disk_is_enough_once_torch_is_there(bootstrap, installed, recorder, monkeypatch) -> None:
    (installed / ".venv/lib/python3.11/site-packages/torch").mkdir(parents=True)
    (installed / "constraints.txt").write_text("numpy==2.0.0\n")
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda path: SimpleNamespace(free=1e9))
    assert bootstrap.main(installed, recorder) == 0


def test_repository_that_is_not_writable(bootstrap, repository, recorder, capsys) -> None:
    (repository / ".venv.lock").mkdir()  # root may write anywhere, but not to a folder
    assert bootstrap.main(repository, recorder) == 1
    assert f"cannot write to the repository {repository}" in one_line(capsys)


def test_missing_file(bootstrap, repository, recorder, capsys) -> None:
    (repository / "constraints.txt").unlink()
    assert bootstrap.main(repository, recorder) == 1
    assert "constraints.txt" in one_line(capsys)


def test_nothing_runs_and_nothing_is_said_when_ready(bootstrap, installed, recorder, capsys) -> None:
    (installed / ".venv.lock").unlink()
    assert bootstrap.main(installed, recorder) == 0
    assert recorder.calls == []
    assert capsys.readouterr().err == ""
    assert not (installed / ".venv.lock").exists()


@pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml"])
def test_changed_pins_are_installed_in_place(bootstrap, installed, recorder, name) -> None:
    (installed / name).write_text("# changed\n")
    assert bootstrap.main(installed, recorder) == 0
    assert recorder.taken() == ["--version", "install"]
    assert bootstrap.main(installed, recorder) == 0
    assert recorder.taken() == []


def test_moved_repository_is_installed_anew(bootstrap, installed, recorder) -> None:
    moved = installed.rename(installed.with_name("moved"))
    (moved / ".venv" / "old").touch()
    assert bootstrap.main(moved, recorder) == 0
    assert recorder.taken() == ["venv", "install"]
    assert not (moved / ".venv" / "old").exists()


def test_changed_python_is_installed_anew(bootstrap, installed, recorder, monkeypatch) -> None:
    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 99, 0))
    assert bootstrap.main(installed, recorder) == 0
    assert recorder.taken() == ["venv", "install"]


def test_broken_pip_is_installed_anew(bootstrap, installed, recorder) -> None:
    (installed / "constraints.txt").write_text("# changed\n")
    recorder.failing = {"--version"}
    assert bootstrap.main(installed, recorder) == 0
    assert recorder.taken() == ["--version", "venv", "install"]


def test_vanished_python_is_installed_anew(bootstrap, installed, recorder) -> None:
    (installed / ".venv/bin/python").unlink()
    recorder.failing = {"--version"}
    assert bootstrap.main(installed, recorder) == 0
    assert recorder.taken() == ["--version", "venv", "install"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_interrupted_installation_is_begun_again(bootstrap, installed, recorder, monkeypatch, interruption) -> None:
    def interrupted(command: list[str], root: Path) -> int:
        if "install" in command:
            raise interruption
        return 0

    before = (installed / "constraints.txt").read_text()
    (installed / "constraints.txt").write_text("# changed\n")
    if interruption is KeyboardInterrupt:
        assert bootstrap.main(installed, interrupted) == 1
    else:
        with pytest.raises(SystemExit):
            bootstrap.main(installed, interrupted)
    (installed / "constraints.txt").write_text(before)  # the old stamp must not count again
    assert bootstrap.main(installed, recorder) == 0
    assert recorder.taken() == ["venv", "install"]


def test_failure_of_pip(bootstrap, repository, recorder, capsys) -> None:
    recorder.failing = {"install"}
    recorder.log = (
        "Collecting x\nERROR: Cannot install x and y\nERROR: ResolutionImpossible: for help visit here\n\nnotice\n"
    )
    assert bootstrap.main(repository, recorder) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == f"fa-audit: pip failed: ERROR: Cannot install x and y (log: {repository / '.venv/install.log'})"
    assert not (repository / READY).exists()


def test_failure_to_create(bootstrap, repository, recorder, capsys) -> None:
    recorder.failing, recorder.log = {"venv"}, "the last line\n"
    assert bootstrap.main(repository, recorder) == 1
    assert "creating .venv failed: the last line (log: " in capsys.readouterr().err
    assert recorder.taken() == ["venv"]


def test_link_to_another_disk_is_kept(bootstrap, repository, recorder, tmp_path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (repository / ".venv").symlink_to(elsewhere)
    assert bootstrap.main(repository, recorder) == 0
    assert (elsewhere / ".fa-audit-ready").is_file()
    assert (repository / ".venv").is_symlink()


def test_second_installation_waits_for_the_first(bootstrap, repository, recorder, capsys) -> None:
    said, say = threading.Event(), bootstrap.say
    bootstrap.say = lambda line: (say(line), said.set())
    second = threading.Thread(target=bootstrap.main, args=(repository, recorder))
    with (repository / ".venv.lock").open("a") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second.start()
        assert said.wait(20)
        assert recorder.calls == []
    second.join(20)
    assert recorder.calls == ["venv", "install"]
    assert "another installation" in capsys.readouterr().err


def test_run_keeps_the_log_and_the_status(bootstrap, repository, monkeypatch) -> None:
    (repository / ".venv").mkdir()
    monkeypatch.setenv("PYTHONPATH", "misleading")
    code = "import os; print(os.getcwd(), os.environ.get('PYTHONPATH')); raise SystemExit(3)"
    assert bootstrap.run([sys.executable, "-c", code], repository) == 3
    assert (repository / bootstrap.LOG).read_text() == f"{repository} None\n"


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`make -C` the repository, from elsewhere; without what an outer make says to an inner one."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", "-C", str(ROOT), *arguments]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("help",)])
def test_make_help_lists_the_targets(arguments: tuple[str, ...]) -> None:
    answer = make(*arguments)
    assert answer.returncode == 0, answer.stderr
    for target in ("demo", "test", "lint", "bench", "clean-env", "help"):
        assert f"make {target} " in answer.stdout


def test_make_without_python_says_one_line() -> None:
    answer = make("PYTHON=/nowhere/python3", "demo")
    assert answer.returncode != 0
    said = [line for line in answer.stderr.splitlines() if not line.startswith("make:")]
    assert len(said) == 1
    assert "no /nowhere/python3 on the PATH" in said[0]
