"""Damaged checkpoints and states to resume from are noticed, and nothing in them executes."""

import pickle
import shutil

import pytest
from harness import altered, at_random, clear_error

pytestmark = pytest.mark.faults


class Evil:
    """Unpickled, it leaves a file behind."""

    def __reduce__(self):
        return open, ("executed", "w")


DAMAGES = {
    "empty": lambda content: b"",
    "cut in the middle": lambda content: content[: len(content) // 2],
    "cut by a byte": lambda content: content[:-1],
    "a pickle": lambda content: pickle.dumps(Evil()),
    **{f"a bit at {place}": lambda content, p=place: altered(content, p) for place in at_random(3, "bit")},
}
damaged = pytest.mark.parametrize("damage", DAMAGES)


def refused(disturbed, folder, name, content):
    """Audit an undisturbed training, one of whose files is replaced; return the error."""
    shutil.copytree(disturbed.undisturbed()[0], folder, dirs_exist_ok=True)
    (folder / name).write_bytes(content((folder / name).read_bytes()))
    if content in DAMAGES.values():
        (folder / "net.json").unlink()  # whose SHA-256 would notice it first
    return clear_error(*disturbed.server.run(folder, "audit", "net.safetensors", "--data", disturbed.data))


@damaged
def test_a_damaged_checkpoint_is_not_audited(disturbed, tmp_path, damage):
    line = refused(disturbed, tmp_path, "net.safetensors", DAMAGES[damage])
    assert "net.safetensors" in line and "train the run again" in line
    assert not (tmp_path / "executed").exists()


@damaged
def test_a_damaged_state_is_not_resumed(disturbed, tmp_path, damage):
    assert disturbed.train(tmp_path, die_at=40)[0] == -9
    state = tmp_path / ".net.resume"
    state.write_bytes(DAMAGES[damage](state.read_bytes()))
    assert "starting over" in disturbed.rerun_to_the_same_bits(tmp_path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", ["net.safetensors", "net.csv", "net.json"])
def test_files_of_two_trainings_are_not_audited_together(disturbed, tmp_path, name):
    other = (disturbed.undisturbed("dfa")[0] / name).read_bytes()
    assert "of another training than net.json" in refused(disturbed, tmp_path, name, lambda content: other)
