"""A training that is killed goes on with the same command and ends with the bits of one that nobody killed."""

import os
import signal
import time

import pytest
from harness import SAME_BITS, at_random

RUNS = ("dfa+penalty1e-2", "kolen_pollack", "state_bridge", "fa+random_targets")


@pytest.mark.faults("kill -9 of a training")
@pytest.mark.parametrize("moment", at_random(40, "kill"))
def test_a_training_killed_at_any_moment(disturbed, tmp_path, recovered, moment):
    run = RUNS[int(1000 * moment) % len(RUNS)]
    disturbed.kill(tmp_path, signal.SIGKILL, moment, run)
    disturbed.rerun_to_the_same_bits(tmp_path, run)
    recovered(SAME_BITS)


@pytest.mark.faults("SIGTERM to a training")
@pytest.mark.parametrize("moment", at_random(20, "terminate"))
def test_a_training_asked_to_stop_at_any_moment(disturbed, tmp_path, recovered, moment):
    disturbed.kill(tmp_path, signal.SIGTERM, moment)
    disturbed.rerun_to_the_same_bits(tmp_path)
    recovered(SAME_BITS)


@pytest.mark.faults("kill -9 of a training, again and again")
@pytest.mark.parametrize("moments", [at_random(4, "again", number) for number in range(4)])
def test_a_training_killed_again_and_again(disturbed, tmp_path, recovered, moments):
    for moment in moments:
        disturbed.kill(tmp_path, signal.SIGKILL, moment)
    disturbed.rerun_to_the_same_bits(tmp_path)
    recovered(SAME_BITS)


@pytest.mark.faults("a second training of the same run")
@pytest.mark.parametrize("moment", at_random(5, "second"))
def test_two_trainings_of_one_run_take_turns(disturbed, tmp_path, recovered, moment):
    first = disturbed.start(tmp_path)
    time.sleep(moment * disturbed.undisturbed()[1])
    second = disturbed.start(tmp_path)
    assert [disturbed.server.wait(process)[0] for process in (first, second)] == [0, 0]
    disturbed.check_same(tmp_path)
    recovered(SAME_BITS)


@pytest.mark.faults("kill -9 while another training waits")
@pytest.mark.parametrize("moment", at_random(5, "waiting"))
def test_a_training_that_waits_goes_on_where_the_killed_one_stopped(disturbed, tmp_path, recovered, moment):
    first = disturbed.start(tmp_path)
    second = disturbed.start(tmp_path)
    time.sleep(moment * disturbed.undisturbed()[1])
    os.kill(first, signal.SIGKILL)
    disturbed.server.wait(first)
    assert disturbed.server.wait(second)[0] == 0
    disturbed.check_same(tmp_path)
    recovered(SAME_BITS)
