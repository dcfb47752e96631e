"""NaN and infinities at one step of a training, and files with odd times."""

import os
import shutil
import signal
import time

import pytest
from harness import SAME_BITS, at_random

METHOD = '''
from dataclasses import dataclass, replace
from pathlib import Path

from fa_audit.methods.dfa import DFA


@dataclass(frozen=True)
class Faulty(DFA):
    """DFA, into whose credits the file `fault` puts its value: in one step of this process, or from an epoch on."""

    def begin_epoch(self, state, progress):
        super().begin_epoch(state, progress)
        state.progress = progress

    def credits(self, network, trace, labels, state):
        found = super().credits(network, trace, labels, state)
        if not network.training or not Path("fault").exists():
            return found
        state.step = getattr(state, "step", -1) + 1
        value, kind, place = Path("fault").read_text().split()
        hit = state.step == int(place) if kind == "step" else state.progress >= float(place)
        return replace(found, blocks=[a * float(value) for a in found.blocks]) if hit else found
'''


@pytest.fixture
def folder(disturbed, tmp_path):
    for place in (disturbed.folder, tmp_path):
        (place / "faulty.py").write_text(METHOD)
    return tmp_path


RUN = "faulty:Faulty"
STEPS = [(value, int(48 * place)) for value in ("nan", "inf", "-inf") for place in at_random(5, "step", value)]


@pytest.mark.faults("NaN or infinity at a step, once")
@pytest.mark.parametrize(("value", "step"), STEPS)
def test_a_number_that_is_none_once(disturbed, folder, recovered, value, step):
    disturbed.undisturbed(RUN)
    (folder / "fault").write_text(f"{value} step {step}")
    status, said = disturbed.train(folder, RUN)
    assert status == 0 and "a fault of the machine" in said, said
    (folder / "fault").unlink()
    disturbed.check_same(folder, RUN)
    recovered(SAME_BITS)


@pytest.mark.faults("NaN or infinity from an epoch on, and kill -9")
@pytest.mark.parametrize(
    ("value", "epoch", "step"), [("nan", 0.0, 30), ("nan", 0.5, 45), ("inf", 0.25, 60), ("-inf", 0.5, 80)]
)
def test_a_divergence_is_a_result_that_can_be_audited(disturbed, folder, recovered, value, epoch, step):
    for place in (whole := folder / "whole", killed := folder / "killed"):
        place.mkdir()
        (place / "faulty.py").write_text(METHOD)
        (place / "fault").write_text(f"{value} epoch {epoch}")
    assert "the training diverged" in disturbed.train(whole, RUN)[1]
    assert disturbed.train(killed, RUN, die_at=step)[0] == -signal.SIGKILL
    status, said = disturbed.train(killed, RUN)
    assert status == 0, said
    for name in ("net.safetensors", "net.csv"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    audit = ("audit", "net.safetensors", "--data", disturbed.data, "--method", RUN)
    status, said = disturbed.server.run(killed, *audit)
    assert status == 0 and "nan" in (killed / "net.csv").read_text() and "D1" in said, said
    recovered(SAME_BITS)


@pytest.mark.faults("files of yesterday and tomorrow")
@pytest.mark.parametrize("days", [-20000, -1, 1, 3650])
@pytest.mark.parametrize("name", [".net.resume", "net.safetensors"])
def test_a_training_does_not_look_at_times(disturbed, tmp_path, recovered, name, days):
    if name == "net.safetensors":
        shutil.copytree(disturbed.undisturbed()[0], tmp_path, dirs_exist_ok=True)
    else:
        disturbed.train(tmp_path, die_at=45)
    moment = time.time() + 86400 * days
    os.utime(tmp_path / name, (moment, moment))
    disturbed.rerun_to_the_same_bits(tmp_path)
    recovered(SAME_BITS)
