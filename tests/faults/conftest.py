"""Fixtures of the fault tests, which run the code of a copy of the project: whole, or broken by ``--break``."""

import os

import pytest
from harness import BREAKS, Disturbed, Server, broken_copy

IN_MEMORY = "/dev/shm"  # these tests flush thousands of files


def pytest_addoption(parser):
    parser.addoption("--break", choices=sorted(BREAKS), help="break the product in this way: the suite must fail")


def pytest_configure():
    if os.access(IN_MEMORY, os.W_OK):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", IN_MEMORY)


@pytest.fixture(scope="session")
def sources(request, tmp_path_factory):
    """A copy of the project whose code every test of this suite runs."""
    return broken_copy(tmp_path_factory.mktemp("sources") / "project", request.config.getoption("break", None))


@pytest.fixture(scope="session")
def server(sources):
    """Runs `fa-audit ...` without importing torch again each time."""
    with Server(sources) as running:
        yield running


@pytest.fixture(scope="session")
def disturbed(server, tmp_path_factory):
    """Trainings to disturb, and undisturbed ones to compare them with."""
    return Disturbed(server, tmp_path_factory.mktemp("undisturbed"))
