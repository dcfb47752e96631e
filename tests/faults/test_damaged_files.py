"""Damaged checkpoints, states to resume from and data are noticed, and nothing in them executes."""

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


def finished(disturbed, folder):
    """Copy an undisturbed training's results and return the checkpoint."""
    shutil.copytree(disturbed.undisturbed()[0], folder, dirs_exist_ok=True)
    return folder / "net.safetensors"


def refused(disturbed, folder, *arguments):
    line = clear_error(*disturbed.server.run(folder, *arguments))
    assert not (folder / "executed").exists()
    return line


@damaged
def test_a_damaged_checkpoint_is_not_audited(disturbed, tmp_path, damage):
    checkpoint = finished(disturbed, tmp_path)
    checkpoint.write_bytes(DAMAGES[damage](checkpoint.read_bytes()))
    (tmp_path / "net.json").unlink()  # whose SHA-256 would notice it first
    line = refused(disturbed, tmp_path, "audit", "net.safetensors", "--data", disturbed.data)
    assert "net.safetensors" in line and "train the run again" in line


@damaged
def test_a_damaged_state_is_not_resumed(disturbed, tmp_path, damage):
    assert disturbed.train(tmp_path, die_at=40)[0] == -9
    state = tmp_path / ".net.resume"
    state.write_bytes(DAMAGES[damage](state.read_bytes()))
    assert "starting over" in disturbed.rerun_to_the_same_bits(tmp_path)
    assert not (tmp_path / "executed").exists()


@damaged
def test_damaged_data_are_not_trained_on(disturbed, tmp_path, damage):
    (tmp_path / "d.safetensors").write_bytes(DAMAGES[damage](disturbed.data.read_bytes()))
    line = refused(disturbed, tmp_path, *disturbed.arguments(data="d.safetensors"))
    assert "d.safetensors" in line and "elete it and make it alone" in line
    assert not list(tmp_path.glob("*net*"))


@pytest.mark.parametrize("run", ["bp", "dfa+penalty1e-2+frozen"])
def test_the_state_of_another_run_is_not_resumed(disturbed, tmp_path, run):
    for folder in (other := tmp_path / "other", own := tmp_path / "run"):
        folder.mkdir()
    assert disturbed.train(other, run, die_at=40)[0] == -9
    shutil.copy(other / ".net.resume", own / ".net.resume")
    assert "starting over" in disturbed.rerun_to_the_same_bits(own)


@pytest.mark.parametrize("name", ["net.safetensors", "net.csv", "net.json"])
def test_files_of_two_trainings_are_not_audited_together(disturbed, tmp_path, name):
    finished(disturbed, tmp_path)
    shutil.copy(disturbed.undisturbed("dfa")[0] / name, tmp_path / name)
    line = refused(disturbed, tmp_path, "audit", "net.safetensors", "--data", disturbed.data)
    assert "of another training than net.json" in line
