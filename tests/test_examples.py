"""The `>>>` examples in docstrings print what they say, and the scripts in examples/ run."""

import doctest
from importlib import import_module

import pytest
from projects import ROOT, python

SOURCES = ROOT / "src"
MODULES = [
    path.relative_to(SOURCES) for path in SOURCES.rglob("*.py") if ">>> " in path.read_text()
]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_examples_of_a_module(path):
    found = doctest.testmod(import_module(".".join(path.with_suffix("").parts)))
    assert found.attempted and not found.failed


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("minimal_worked_example.py", 0, "You may write\n  - "),
        ("smoke_test.py", 2, "no such file; run `make demo` first"),
    ],
)
def test_scripts_run_without_any_results(tmp_path, script, status, words):
    done = python(tmp_path, ROOT / "examples" / script)
    assert done.returncode == status and words in done.stdout + done.stderr, done.stderr
