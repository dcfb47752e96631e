"""Fixtures of the fault tests, which run the code of a copy of the project."""

import os

import pytest
from forks import Server
from harness import Disturbed
from projects import copy_sources

PRELOADED = ("training.run_files", "audit.run_audit", "methods.dfa", "networks.resmlp")
IN_MEMORY = "/dev/shm"  # these tests flush thousands of files


def pytest_configure():
    if os.access(IN_MEMORY, os.W_OK):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", IN_MEMORY)


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """A copy of the project whose code every test of this suite runs."""
    return copy_sources(tmp_path_factory.mktemp("sources") / "project")


@pytest.fixture(scope="session")
def server(sources):
    """Runs `fa-audit ...` without importing torch again each time."""
    modules = [f"fa_audit.{name}" for name in PRELOADED]
    with Server(
        "fa_audit.cli", *modules, PYTHONPATH=str(sources / "src"), PYTHONWARNINGS="ignore"
    ) as running:
        yield running


@pytest.fixture(scope="session")
def disturbed(server, tmp_path_factory):
    """Trainings to disturb, and undisturbed ones to compare them with."""
    return Disturbed(server, tmp_path_factory.mktemp("undisturbed"))
