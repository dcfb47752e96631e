"""Counts injections: which fault, how the work recovered; `pytest -m faults` ends with the table.

A test of a fault is marked ``@pytest.mark.faults("name of the fault")``, injects it once, and says by
``recovered(SAME_BITS)`` or ``recovered(CLEAR_ERROR)`` how it ended. A test that fails, or does not say, counts as lost.
"""

import os
from collections import Counter

import pytest
from harness import BREAKS, SAME_BITS, Disturbed, Server, broken_copy

IN_MEMORY = "/dev/shm"  # thousands of files are flushed to the disk, and nobody pulls the plug
OUTCOMES = (SAME_BITS, "clear error", "lost")


def pytest_addoption(parser):
    parser.addoption("--break", choices=sorted(BREAKS), help="break the product in this way: the suite must fail")


def pytest_configure():
    if os.access(IN_MEMORY, os.W_OK):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", IN_MEMORY)


def pytest_runtest_setup(item):
    marker = item.get_closest_marker("faults")
    if marker and marker.args:
        item.user_properties.append(("fault", marker.args[0]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    said = dict(report.user_properties)
    if report.when == "call" and report.passed and "fault" in said and "recovered" not in said:
        report.outcome, report.longrepr = "failed", "the test does not say how the work recovered"
    return report


def pytest_terminal_summary(terminalreporter):
    counts, skipped = Counter(), Counter()
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            said = dict(getattr(report, "user_properties", ()))
            if outcome == "skipped" and "fault" in said:
                skipped[said["fault"], report.longrepr[2].removeprefix("Skipped: ")] += 1
            elif outcome in ("passed", "failed", "error") and "fault" in said:
                counts[said["fault"], said.get("recovered") if outcome == "passed" else "lost"] += 1
    if counts or skipped:
        terminalreporter.section("faults")
        terminalreporter.write("\n".join([*table(counts), *reasons(skipped), ""]))


def table(counts):
    names = sorted({fault for fault, _ in counts})
    rows = [[name, *(counts[name, outcome] for outcome in OUTCOMES)] for name in names]
    rows.append(["in all", *(sum(row[1 + i] for row in rows) for i in range(len(OUTCOMES)))])
    width = max(len(row[0]) for row in rows)
    yield f"{'fault':<{width}}  injections  recovered  same bits  clear error  lost"
    for name, same, clear, lost in rows:
        yield f"{name:<{width}}  {same + clear + lost:>10}  {same + clear:>9}  {same:>9}  {clear:>11}  {lost:>4}"


def reasons(skipped):
    return [f"not injected: {fault} ({count}): {reason}" for (fault, reason), count in sorted(skipped.items())]


@pytest.fixture
def recovered(record_property):
    """Says how the work recovered from the fault of this test."""
    return lambda outcome: record_property("recovered", outcome)


@pytest.fixture(scope="session")
def sources(request, tmp_path_factory):
    """A copy of the project, broken on demand, whose code every test of this suite runs."""
    return broken_copy(tmp_path_factory.mktemp("sources") / "project", request.config.getoption("break", None))


@pytest.fixture(scope="session")
def server(sources):
    """Runs `fa-audit ...` without importing torch again each time."""
    with Server(sources) as running:
        yield running


@pytest.fixture(scope="session")
def disturbed(server, tmp_path_factory):
    """Trains, audits, disturbs and compares with what an undisturbed training or audit gives."""
    return Disturbed(server, tmp_path_factory.mktemp("undisturbed"))
