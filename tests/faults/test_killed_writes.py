"""Killed at any step of any write: final names hold whole files, and nothing half-written outlives the next run."""

import signal

import pytest
from harness import SAME_BITS

EPOCHS = 3
STEPS = 45  # changes of the file system in a training of three epochs, counted below


@pytest.mark.faults("kill -9 between two steps of a write")
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_killed_before_each_change_of_the_file_system(disturbed, tmp_path, recovered, step):
    status, said = disturbed.train(tmp_path, epochs=EPOCHS, die_at=step)
    assert status == -signal.SIGKILL, said
    disturbed.rerun_to_the_same_bits(tmp_path, epochs=EPOCHS)
    recovered(SAME_BITS)


@pytest.mark.faults("kill within a write")
@pytest.mark.parametrize("size", [1, 100, 700, 1000, 3000, 5000, 7000, 9000, 11000, 13000])
def test_killed_with_some_bytes_of_a_file_written(disturbed, tmp_path, recovered, size):
    status, said = disturbed.train(tmp_path, die_when_larger=size)
    assert status == -signal.SIGXFSZ, said
    assert [path for path in tmp_path.glob("*.part*") if path.stat().st_size == size]
    disturbed.rerun_to_the_same_bits(tmp_path)
    recovered(SAME_BITS)


@pytest.mark.faults
def test_the_steps_are_all_that_there_are(disturbed, tmp_path):
    (tmp_path / "run").mkdir()
    disturbed.train(tmp_path / "run", epochs=EPOCHS, count_to=str(tmp_path / "count"))
    assert int((tmp_path / "count").read_text()) == STEPS
