"""Damaged checkpoints, states to resume from and data: never believed, never executed."""

import pickle
import shutil

import pytest
from harness import CLEAR_ERROR, SAME_BITS, altered, at_random, clear_error

RUN, EPOCHS = "dfa+penalty1e-2", 8


class Evil:
    """Unpickled, it leaves a file behind."""

    def __reduce__(self):
        return open, ("executed", "w")


def damages(*purpose):
    """Name of a damage and what it makes of the bytes of a file."""
    pieces = [0, 1, 7, 8, 9, 100, -1]
    cut = {f"{length} bytes left": (lambda content, n=length: content[:n]) for length in pieces}
    cut |= {f"cut at {place}": (lambda content, p=place: content[: int(p * len(content))]) for place in (0.3, 0.6, 0.9)}
    bits = {f"a bit at {p}": (lambda content, p=p: altered(content, p)) for p in at_random(8, *purpose)}
    foreign = {
        "a pickle": lambda content: pickle.dumps(Evil()),
        "a pickle at the end": lambda content: content + pickle.dumps(Evil()),
        "a text": lambda content: b"hello\n",
        "zeros": lambda content: bytes(len(content)),
        "twice": lambda content: 2 * content,
    }
    return cut | bits | foreign


def finished(disturbed, folder):
    """A copy of an undisturbed training's results."""
    shutil.copytree(disturbed.undisturbed(RUN, EPOCHS)[0], folder, dirs_exist_ok=True)
    return folder / "net.safetensors"


def refused(disturbed, folder, *arguments):
    status, said = disturbed.server.run(folder, *arguments)
    clear_error(status, said)
    assert not (folder / "executed").exists()
    return said.strip().splitlines()[-1]


CHECKPOINTS, STATES, DATA = damages("checkpoint"), damages("resume"), damages("data")


@pytest.mark.faults("damaged checkpoint")
@pytest.mark.parametrize("damage", CHECKPOINTS)
def test_a_damaged_checkpoint_is_not_audited(disturbed, tmp_path, recovered, damage):
    checkpoint = finished(disturbed, tmp_path)
    checkpoint.write_bytes(CHECKPOINTS[damage](checkpoint.read_bytes()))
    line = refused(disturbed, tmp_path, "audit", "net.safetensors", "--data", disturbed.data)
    assert "net.safetensors" in line and ("train the run again" in line or "run the training again" in line)
    recovered(CLEAR_ERROR)


@pytest.mark.faults("damaged state to resume from")
@pytest.mark.parametrize("damage", STATES)
def test_a_damaged_state_is_not_gone_on_from(disturbed, tmp_path, recovered, damage):
    state = tmp_path / ".net.resume"
    shutil.copy(interrupted(disturbed), state)
    state.write_bytes(STATES[damage](state.read_bytes()))
    said = disturbed.rerun_to_the_same_bits(tmp_path)
    assert "starting over" in said and not (tmp_path / "executed").exists()
    recovered(SAME_BITS)


def interrupted(disturbed):
    """The state that a training leaves which is killed at its 40th change of the file system."""
    folder = disturbed.folder / "interrupted"
    if not folder.exists():
        folder.mkdir()
        assert disturbed.train(folder, die_at=40)[0] == -9
    return folder / ".net.resume"


@pytest.mark.faults("state of another run to resume from")
@pytest.mark.parametrize("run", ["dfa", "bp", "fa+random_targets", "dfa+penalty1e-2+frozen"])
def test_the_state_of_another_run_is_not_gone_on_from(disturbed, tmp_path, recovered, run):
    (tmp_path / "other").mkdir()
    assert disturbed.train(tmp_path / "other", run, die_at=40)[0] == -9
    (tmp_path / "run").mkdir()
    shutil.copy(tmp_path / "other/.net.resume", tmp_path / "run/.net.resume")
    assert "starting over" in disturbed.rerun_to_the_same_bits(tmp_path / "run")
    recovered(SAME_BITS)


@pytest.mark.faults("damaged data")
@pytest.mark.parametrize("damage", DATA)
def test_damaged_data_are_not_trained_on(disturbed, tmp_path, recovered, damage):
    (tmp_path / "d.safetensors").write_bytes(DATA[damage](disturbed.data.read_bytes()))
    line = refused(disturbed, tmp_path, *disturbed.arguments(RUN, EPOCHS, "d.safetensors"))
    assert "d.safetensors" in line and "elete it and make it alone" in line
    assert not list(tmp_path.glob("*net*"))
    recovered(CLEAR_ERROR)


@pytest.mark.faults("results of two trainings mixed up")
@pytest.mark.parametrize("name", ["net.safetensors", "net.csv", "net.json"])
def test_files_of_two_trainings_are_not_audited_together(disturbed, tmp_path, recovered, name):
    finished(disturbed, tmp_path)
    shutil.copy(disturbed.undisturbed("dfa", EPOCHS)[0] / name, tmp_path / name)
    line = refused(disturbed, tmp_path, "audit", "net.safetensors", "--data", disturbed.data)
    assert "of another training than net.json" in line
    recovered(CLEAR_ERROR)
