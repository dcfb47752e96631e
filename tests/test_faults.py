"""The suite of faults itself, on a few of its injections: it counts them, and finds a product that is broken."""

import re
import subprocess
import sys

from projects import ROOT

FEW = [
    *(f"test_killed_writes.py::test_killed_before_each_change_of_the_file_system[{step}]" for step in (20, 27)),
    "test_damaged_files.py::test_a_damaged_state_is_not_gone_on_from[a pickle]",
    "test_damaged_files.py::test_damaged_data_are_not_trained_on[a pickle]",
    "test_full_disks.py::test_a_file_that_the_system_does_not_let_grow[5000]",
]


def suite(*options):
    few = [*(f"tests/faults/{test}" for test in FEW), "-m", "faults", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *few], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def row(fault, said):
    """Injections, recovered, same bits, clear error, lost."""
    return [int(number) for number in re.search(rf"^{fault} +(.*)$", said, re.MULTILINE)[1].split()]


def test_the_suite_of_faults_counts_what_recovered_and_finds_a_broken_resume():
    done = suite("--break", "resume")
    assert done.returncode == 1, done.stdout
    injections, recovered, same_bits, clear_error, lost = row("in all", done.stdout)
    killed = row("kill -9 between two steps of a write", done.stdout)
    assert injections == recovered + lost == len(FEW) and recovered == same_bits + clear_error > 0
    assert lost == killed[-1] > 0, done.stdout  # nothing else is lost: undisturbed, `make test-faults` exits with 0
