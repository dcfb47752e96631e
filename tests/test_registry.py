"""Names to classes, and what a class's source says of it without being imported."""

import subprocess
import sys
import textwrap

import pytest

from fa_audit.core.errors import AuditError
from fa_audit.core.registry import class_literals, find_module, load
from fa_audit.methods import METHODS
from fa_audit.methods.dfa import DFA
from fa_audit.methods.method import Method
from fa_audit.training.learner import load_method


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("declared", ["relative_time", "memory_mb"])
def test_the_costs_that_the_workflow_reads_are_those_of_the_class(name, declared):
    base = class_literals("fa_audit.methods.method:Method")
    read = (base | class_literals(METHODS[name]))[declared]
    assert read == getattr(type(load_method(name)), declared)


def test_reading_literals_imports_nothing(tmp_path):
    (tmp_path / "poison.py").write_text("raise SystemExit('imported')\nclass Mine:\n    relative_time: float = 3.5\n")
    program = (
        "import sys; from fa_audit.core.registry import class_literals;"
        "print(class_literals('poison:Mine'), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "{'relative_time': 3.5} False"


def test_literals_of_the_class_and_of_its_bases_are_read(tmp_path, monkeypatch):
    (tmp_path / "base.py").write_text("class Far:\n    far = 1\n    both = 1\n")
    source = """
        from base import Far
        import torch

        class Near:
            near = 2.5
            both = 2

        class Mine(Near, Far, torch.nn.Module, Exception):
            summary: str = "one line"
            memory_mb = 64
            computed = 2 * 3
            bare: int

            def relative_time(self):
                inner = 5
    """
    (tmp_path / "literal.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    expected = {"summary": "one line", "memory_mb": 64, "near": 2.5, "far": 1, "both": 2}
    assert class_literals("literal:Mine") == expected


def test_a_subclass_costs_what_its_parent_says(tmp_path, monkeypatch):
    source = "from fa_audit.methods.ep import EP\nclass Mine(EP):\n    summary = 'mine'\n"
    (tmp_path / "subclass.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert class_literals("subclass:Mine")["relative_time"] == load_method("subclass:Mine").relative_time > 1


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("no_such_module:Mine", "no file of the module 'no_such_module'"),
        ("broken:Mine", "is no Python source"),
        ("empty:Mine", "no class 'Mine'"),
    ],
)
def test_a_class_that_cannot_be_read_is_named(tmp_path, monkeypatch, entry, words):
    (tmp_path / "broken.py").write_text("class Mine(:\n")
    (tmp_path / "empty.py").write_text("class Other: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AuditError, match=words):
        class_literals(entry)


def test_modules_are_found_as_files_and_as_packages(tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "second/package/inner").mkdir(parents=True)
    for path in ("second/package/__init__.py", "second/package/inner/__init__.py", "second/package/inner/leaf.py"):
        (tmp_path / path).touch()
    folders = [tmp_path / "first", tmp_path / "second"]
    assert find_module("package", folders) == tmp_path / "second/package/__init__.py"
    assert find_module("package.inner.leaf", folders) == tmp_path / "second/package/inner/leaf.py"
    assert find_module("package.other", folders) is None


def test_a_name_with_a_colon_is_a_class_elsewhere():
    assert load("method", METHODS, "fa_audit.methods.dfa:DFA") is DFA
    assert load_method("fa_audit.methods.dfa:DFA") == DFA()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dfaa", "unknown method 'dfaa'.*Did you mean 'dfa'"),
        ("a/b:Mine", "unknown method"),
        ("no_such_module:Mine", "No module named 'no_such_module'"),
        ("fa_audit.methods.dfa:Nothing", "has no attribute 'Nothing'"),
        ("os:system", "expected a subclass of fa_audit.methods.method.Method"),
        ("fa_audit.methods.dfa:Feedback", "expected a subclass"),
    ],
)
def test_what_is_no_method_is_refused_before_it_is_called(name, words):
    with pytest.raises(AuditError, match=words):
        load_method(name)


def test_a_class_elsewhere_must_be_a_method(tmp_path, monkeypatch):
    (tmp_path / "elsewhere.py").write_text(
        "from fa_audit.methods.method import Method\nclass Mine(Method):\n    summary = 'mine'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = load_method("elsewhere:Mine")
    assert isinstance(mine, Method) and mine.summary == "mine"
