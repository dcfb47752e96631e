"""A training killed at any moment continues with the same command and ends with the bits of an
undisturbed one.
"""

import os
import signal
import time

import pytest
from harness import at_random

pytestmark = pytest.mark.faults
RUNS = ("dfa+penalty1e-2", "kolen_pollack", "state_bridge", "fa+random_targets")


@pytest.mark.parametrize(
    ("how", "moment"), list(zip([signal.SIGKILL, signal.SIGTERM], at_random(2, "kill")))
)
@pytest.mark.parametrize("run", RUNS)
def test_killed_at_any_moment(disturbed, tmp_path, run, how, moment):
    disturbed.kill(tmp_path, how, moment, run)
    disturbed.rerun_to_the_same_bits(tmp_path, run)


@pytest.mark.parametrize("step", range(2, 24, 3))
def test_killed_before_a_change_of_the_file_system(disturbed, tmp_path, step):
    """A training makes 24 changes: of the lock, of its first and its last state, of the results."""
    status, said = disturbed.train(tmp_path, epochs=3, die_at=step)
    assert status == -signal.SIGKILL, said
    disturbed.rerun_to_the_same_bits(tmp_path, epochs=3)


@pytest.mark.parametrize("killed", [False, True])
def test_a_second_training_of_the_same_run_waits_and_takes_over(disturbed, tmp_path, killed):
    first = disturbed.start(tmp_path)
    time.sleep(0.4 * disturbed.undisturbed()[1])
    second = disturbed.start(tmp_path)
    if killed:
        os.kill(first, signal.SIGKILL)
    statuses = [disturbed.server.wait(process)[0] for process in (first, second)]
    assert statuses[1] == 0 and (killed or statuses[0] == 0)
    disturbed.check_same(tmp_path)


@pytest.mark.parametrize("size", [1, 1000, 9000])
def test_a_file_that_the_system_does_not_let_grow(disturbed, tmp_path, size):
    status, said = disturbed.train(tmp_path, largest_file=size)
    assert status == 1 and "Traceback" not in said, said
    assert "not written (File too large" in said.strip().splitlines()[-1], said
    assert not list(tmp_path.glob("*.part*"))
    disturbed.rerun_to_the_same_bits(tmp_path)
