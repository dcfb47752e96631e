"""The fault tests find a product that is broken."""

import pytest
from projects import ROOT, python

FOUND_BY = {
    "resume-optimiser": "test_killed.py::test_killed_before_a_change_of_the_file_system[14]",
    "not-atomic": "test_killed.py::test_killed_with_some_bytes_of_a_file_written[5000]",
}


@pytest.mark.faults
@pytest.mark.parametrize("mistake", FOUND_BY)
def test_a_deliberate_mistake_is_found(mistake):
    test = f"tests/faults/{FOUND_BY[mistake]}"
    done = python(
        ROOT, "-m", "pytest", test, "-m", "faults", "-p", "no:cacheprovider", "--break", mistake
    )
    assert done.returncode == 1 and "FAILED" in done.stdout and "ERROR" not in done.stdout, (
        done.stdout
    )
