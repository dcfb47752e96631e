"""The examples in docstrings print what they say."""

import doctest
from importlib import import_module

import pytest

MODULES = [
    "audit.diagnose", "core.errors", "core.metrics", "core.thresholds", "experiments.config_file", "experiments.grid",
    "experiments.paths", "experiments.plan", "experiments.spec", "networks.contract", "results.statistics",
    "results.verdict_summary",
]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name):
    found = doctest.testmod(import_module(f"fa_audit.{name}"))
    assert found.attempted and not found.failed
