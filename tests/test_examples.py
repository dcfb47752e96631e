"""The `>>>` examples of public functions print what they say, and the scripts in examples/ run."""

import doctest
import importlib
import subprocess
import sys

import pytest
from projects import ROOT

MODULES = (
    "fa_audit.audit.diagnose",
    "fa_audit.networks.contract",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0 and found.failed == 0


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("minimal_worked_example.py", 0, "What to do:\n  - "),
        ("smoke_test.py", 2, "no such file; run `make demo` first"),
    ],
)
def test_scripts_run_without_any_results(tmp_path, script, status, words):
    done = subprocess.run([sys.executable, ROOT / "examples" / script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == status and words in done.stdout + done.stderr, done.stderr
