"""A disk that is full or read-only: one line that says so, and what was written before goes on."""

import shutil
import time
from pathlib import Path

import pytest
from disks import fill, read_only, small_disk
from harness import CLEAR_ERROR, SAME_BITS, at_random, clear, clear_error

NO_SPACE = ("not written", "No space left on device", "free on its disk", "Free some space", "run the same command")


@pytest.mark.faults("disk full from the start of a training")
@pytest.mark.parametrize("free", [0, 4096, 8192, 12288, 16384, 20480, 28672])
def test_a_training_on_a_full_disk(disturbed, tmp_path, recovered, free):
    with small_disk(tmp_path, 400_000) as disk:
        ballast = fill(disk, free)
        status, said = disturbed.train(disk)
        clear_error(status, said, *NO_SPACE)
        assert not list(disk.glob("*.part*"))
        ballast.unlink()
        disturbed.rerun_to_the_same_bits(disk)
    recovered(SAME_BITS)


@pytest.mark.faults("disk full in the middle of a training")
@pytest.mark.parametrize("moment", at_random(6, "full"))
def test_a_disk_that_becomes_full_keeps_the_last_state(disturbed, tmp_path, recovered, moment):
    delay = moment * disturbed.undisturbed(epochs=20)[1] / 2
    with small_disk(tmp_path, 400_000) as disk:
        status, said = starved(disturbed, disk, delay)
        while status == 0:  # it was at its end before the disk was full
            clear(disk)
            delay /= 2
            status, said = starved(disturbed, disk, delay)
        clear_error(status, said, *NO_SPACE)
        assert "going on after epoch" in disturbed.rerun_to_the_same_bits(disk, epochs=20)
    recovered(SAME_BITS)


def starved(disturbed, disk, delay):
    """The outcome of a training whose disk is full some seconds after its first state."""
    process = disturbed.start(disk, epochs=20)
    while not (disk / ".net.resume").exists():
        time.sleep(0.001)
    time.sleep(delay)
    while not ended(process):  # every new state frees the place of the one before
        fill(disk, 0)
    (disk / "ballast").unlink(missing_ok=True)
    return disturbed.server.wait(process)


def ended(process):
    """Whether a process of the server is waiting for its status to be read."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.faults("a file may not grow")
@pytest.mark.parametrize("size", [1, 100, 1000, 3000, 5000, 7000, 9000, 11000, 13000])
def test_a_file_that_the_system_does_not_let_grow(disturbed, tmp_path, recovered, size):
    clear_error(*disturbed.train(tmp_path, largest_file=size), "not written (File too large")
    assert not list(tmp_path.glob("*.part*"))
    disturbed.rerun_to_the_same_bits(tmp_path)
    recovered(SAME_BITS)


@pytest.mark.faults("read-only results")
@pytest.mark.parametrize("there", ["nothing", "results", "a state"])
def test_a_training_into_a_read_only_folder(disturbed, tmp_path, recovered, there):
    if there == "results":
        shutil.copytree(disturbed.undisturbed()[0], tmp_path, dirs_exist_ok=True)
    if there == "a state":
        disturbed.train(tmp_path, die_at=40)
    with read_only(tmp_path):
        clear_error(*disturbed.train(tmp_path), "Read-only file system")
    recovered(CLEAR_ERROR)
    disturbed.rerun_to_the_same_bits(tmp_path)
