"""A full or read-only disk gives one line that says so; what was written before is kept and continued."""

import time
from pathlib import Path

import pytest
from disks import fill, read_only, small_disk
from harness import clear, clear_error

pytestmark = pytest.mark.faults
NO_SPACE = ("not written", "No space left on device", "free on its disk", "Free some space", "run the same command")


@pytest.mark.parametrize("free", [0, 8192, 20480])
def test_a_training_on_a_full_disk(disturbed, tmp_path, free):
    with small_disk(tmp_path, 400_000) as disk:
        ballast = fill(disk, free)
        clear_error(*disturbed.train(disk), *NO_SPACE)
        assert not list(disk.glob("*.part*"))
        ballast.unlink()
        disturbed.rerun_to_the_same_bits(disk)


def test_a_disk_that_becomes_full_keeps_the_last_state(disturbed, tmp_path):
    delay = 0.2 * disturbed.undisturbed(epochs=20)[1]
    with small_disk(tmp_path, 400_000) as disk:
        status, said = starved(disturbed, disk, delay)
        while status == 0:  # it was at its end before the disk was full
            clear(disk)
            delay /= 2
            status, said = starved(disturbed, disk, delay)
        clear_error(status, said, *NO_SPACE)
        assert "resuming after epoch" in disturbed.rerun_to_the_same_bits(disk, epochs=20)


def starved(disturbed, disk, delay):
    """Run a training whose disk is full some seconds after its first state."""
    process = disturbed.start(disk, epochs=20)
    while not (disk / ".net.resume").exists():
        time.sleep(0.001)
    time.sleep(delay)
    while not ended(process):  # every new state frees the place of the one before
        fill(disk, 0)
    (disk / "ballast").unlink(missing_ok=True)
    return disturbed.server.wait(process)


def ended(process):
    """Return whether a process of the server is waiting for its status to be read."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("size", [1, 1000, 9000])
def test_a_file_that_the_system_does_not_let_grow(disturbed, tmp_path, size):
    clear_error(*disturbed.train(tmp_path, largest_file=size), "not written (File too large")
    assert not list(tmp_path.glob("*.part*"))
    disturbed.rerun_to_the_same_bits(tmp_path)


@pytest.mark.parametrize("there", ["nothing", "a state"])
def test_a_training_into_a_read_only_folder(disturbed, tmp_path, there):
    if there == "a state":
        disturbed.train(tmp_path, die_at=40)
    with read_only(tmp_path):
        clear_error(*disturbed.train(tmp_path), "Read-only file system")
    disturbed.rerun_to_the_same_bits(tmp_path)
