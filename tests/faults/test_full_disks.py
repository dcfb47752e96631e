"""A full or read-only disk gives one line that says so; what was written before is kept and
continued.
"""

import pytest
from disks import fill, small_disk
from harness import clear_error

pytestmark = pytest.mark.faults
NO_SPACE = (
    "not written",
    "No space left on device",
    "free on its disk",
    "Free some space",
    "run the same command",
)


@pytest.mark.parametrize("states", [0, 0.5, 1.5])
def test_a_disk_with_room_for_some_states_to_resume_from(disturbed, tmp_path, states):
    assert disturbed.train(tmp_path, die_at=20)[0] == -9
    size = (tmp_path / ".net.resume").stat().st_size
    with small_disk(tmp_path, 400_000) as disk:
        ballast = fill(disk, int(states * size))
        clear_error(*disturbed.train(disk), *NO_SPACE)
        assert not list(disk.glob("*.part*"))
        ballast.unlink()
        assert ("resuming after epoch" in disturbed.rerun_to_the_same_bits(disk)) == (states > 1)


@pytest.mark.parametrize("size", [1, 1000, 9000])
def test_a_file_that_the_system_does_not_let_grow(disturbed, tmp_path, size):
    clear_error(*disturbed.train(tmp_path, largest_file=size), "not written (File too large")
    assert not list(tmp_path.glob("*.part*"))
    disturbed.rerun_to_the_same_bits(tmp_path)
