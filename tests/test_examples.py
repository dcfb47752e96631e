"""The `>>>` examples in docstrings print what they say, and the scripts in examples/ run."""

import doctest
import subprocess
import sys
from importlib import import_module

import pytest
from projects import ROOT

MODULES = [
    "audit.diagnose", "core.errors", "core.intervals", "core.metrics", "core.thresholds", "experiments.config_file",
    "experiments.grid", "experiments.paths", "experiments.plan", "experiments.spec", "networks.contract",
    "results.over_seeds", "results.statistics", "results.verdict_summary",
]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name):
    found = doctest.testmod(import_module(f"fa_audit.{name}"))
    assert found.attempted and not found.failed


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
