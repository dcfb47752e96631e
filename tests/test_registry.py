"""Names to classes, and what a class's source says of it without being imported."""

import textwrap

import pytest

from fa_audit.core.errors import AuditError
from fa_audit.core.source import class_literals
from fa_audit.methods.dfa import DFA
from fa_audit.methods.method import Method
from fa_audit.training.learner import load_method


def test_literals_of_the_class_and_of_its_bases_are_read(tmp_path, monkeypatch):
    """Nothing is imported, and bases are found in modules that are files and in packages."""
    (tmp_path / "package/inner").mkdir(parents=True)
    (tmp_path / "package/inner/__init__.py").write_text("class Far:\n    far = 1\n    both = 1\n")
    source = """
        from package.inner import Far
        import torch

        raise SystemExit("imported")

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
    relaxing = 'from fa_audit.methods.ep import EP\n\n\nclass Relaxing(EP):\n    summary = "mine"\n'
    (tmp_path / "relaxing.py").write_text(relaxing)
    (tmp_path / "literal.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    expected = {"summary": "one line", "memory_mb": 64, "near": 2.5, "far": 1, "both": 2}
    assert class_literals("literal:Mine") == expected
    mine = load_method("relaxing:Relaxing")
    assert class_literals("relaxing:Relaxing")["relative_time"] == mine.relative_time > 1
    assert isinstance(mine, Method) and mine.summary == "mine"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("no_such_module:Mine", "no file of the module 'no_such_module'"),
        ("broken:Mine", "is no Python source"),
        ("empty:Mine", "unknown class of empty.py 'Mine'; known: Other."),
    ],
)
def test_a_class_that_cannot_be_read_is_named(tmp_path, monkeypatch, entry, words):
    (tmp_path / "broken.py").write_text("class Mine(:\n")
    (tmp_path / "empty.py").write_text("class Other: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AuditError, match=words):
        class_literals(entry)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dfaa", "unknown method 'dfaa'.*Did you mean 'dfa'"),
        ("fa_audit.methods.dfa:Nothing", "has no attribute 'Nothing'"),
        ("os:system", "expected a subclass of fa_audit.methods.method.Method"),
    ],
)
def test_what_is_no_method_is_refused_before_it_is_called(name, words):
    assert load_method("fa_audit.methods.dfa:DFA") == DFA()
    with pytest.raises(AuditError, match=words):
        load_method(name)
