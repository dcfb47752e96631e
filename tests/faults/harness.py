"""What the tests of faults share: trainings by `fa-audit train`, undisturbed and disturbed, and how they compare."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from projects import copy_sources

from fa_audit.data.dataset import save_dataset
from fa_audit.data.digits import digits

SAME_BITS, CLEAR_ERROR = "same bits", "clear error"
SEED = 20260621  # of all moments and places that are drawn at random
HERE = Path(__file__).parent
# What --break does to the copy of the project: file, a piece of its text, what is put in its place.
BREAKS = {
    "resume": (
        "src/fa_audit/training/checkpoint.py",
        "moments.setdefault(int(index), {})[key] = value",
        "moments.setdefault(int(index), {})[key] = value if key == 'step' else torch.zeros_like(value)",
    ),
    "write": (
        "src/fa_audit/core/files.py",
        "            write(part)\n",
        "            write(path)\n            write(part)\n",
    ),
    "checksum": (
        "src/fa_audit/training/checkpoint.py",
        "whole = recorded in (None, _checksum(tensors, about))",
        "whole = True",
    ),
}


def broken_copy(folder, how):
    """The project's files; a deliberate mistake in them if one is named."""
    copy_sources(folder)
    if how:
        name, right, wrong = BREAKS[how]
        text = (folder / name).read_text()
        assert right in text, f"--break {how} does not find what it breaks"
        (folder / name).write_text(text.replace(right, wrong))
    return folder


def at_random(count, *purpose):
    """Fractions in [0, 1), the same in every session."""
    draw = random.Random(f"{SEED} {purpose}")
    return [round(draw.random(), 3) for _ in range(count)]


class Server:
    """The process of server.py."""

    def __init__(self, sources):
        environment = os.environ | {"PYTHONPATH": str(sources / "src"), "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, str(HERE / "server.py")]
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def _ask(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, folder, *arguments, **faults):
        """The id of a new process that runs `fa-audit` with these arguments in a folder."""
        return self._ask(start=[str(argument) for argument in arguments], folder=str(folder), faults=faults)

    def wait(self, process):
        """The exit status of a process, negative for a signal, and everything that it said."""
        answer = self._ask(wait=process)
        return answer["status"], answer["said"]

    def run(self, folder, *arguments, **faults):
        return self.wait(self.start(folder, *arguments, **faults))


class Disturbed:
    """Trainings of small networks, each compared with the one that nobody disturbed."""

    def __init__(self, server, folder):
        self.server, self.folder, self.known = server, folder, {}
        self.data = folder / "digits.safetensors"
        save_dataset(digits(folder), self.data)

    def arguments(self, run, epochs, data=None):
        options = ["--width", 8, "--depth", 2, "--batch-size", 256, "--seed", 1]
        return ["train", run, "net.safetensors", "--data", data or self.data, "--epochs", epochs, *options]

    def start(self, folder, run="dfa+penalty1e-2", epochs=8, data=None, **faults):
        return self.server.start(folder, *self.arguments(run, epochs, data), **faults)

    def train(self, folder, run="dfa+penalty1e-2", epochs=8, data=None, **faults):
        """Status and words of a training from its start, or from where another one was interrupted, to its end."""
        return self.server.wait(self.start(folder, run, epochs, data, **faults))

    def undisturbed(self, run="dfa+penalty1e-2", epochs=8):
        """A folder with the results of a training that nobody disturbed, and how long it took in seconds."""
        if (run, epochs) not in self.known:
            folder = self.folder / f"{run}-{epochs}"
            folder.mkdir()
            for helper in self.folder.glob("*.py"):
                shutil.copy(helper, folder)
            start = time.monotonic()
            status, said = self.train(folder, run, epochs)
            assert status == 0, said
            self.known[run, epochs] = folder, time.monotonic() - start
        return self.known[run, epochs]

    def kill(self, folder, how, fraction, run="dfa+penalty1e-2", epochs=8):
        """Start a training and send it a signal after a fraction of the time that it needs; earlier if that is late."""
        delay = fraction * self.undisturbed(run, epochs)[1]
        while True:
            process = self.start(folder, run, epochs)
            time.sleep(delay)
            os.kill(process, how)
            status, said = self.server.wait(process)
            if status == -how:
                return said
            assert status == 0, said
            clear(folder)
            delay /= 2

    def check_whole(self, folder, run="dfa+penalty1e-2", epochs=8):
        """Every result that has its final name is whole."""
        whole = self.undisturbed(run, epochs)[0]
        for name in ("net.safetensors", "net.csv"):
            if (folder / name).exists():
                assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
        if (folder / "net.json").exists():
            json.loads((folder / "net.json").read_text())

    def check_same(self, folder, run="dfa+penalty1e-2", epochs=8):
        """The results are all there with the undisturbed bits, and nothing else is left."""
        whole = self.undisturbed(run, epochs)[0]
        assert names(folder) == names(whole), (names(folder), names(whole))
        self.check_whole(folder, run, epochs)
        ours, theirs = (lasting(json.loads((place / "net.json").read_text())) for place in (folder, whole))
        assert ours == theirs

    def rerun_to_the_same_bits(self, folder, run="dfa+penalty1e-2", epochs=8):
        """One plain run of the same command, which gives the undisturbed results; returns what it said."""
        self.check_whole(folder, run, epochs)
        status, said = self.train(folder, run, epochs)
        assert status == 0, said
        self.check_same(folder, run, epochs)
        return said


def lasting(facts):
    """A sidecar or an audit without what differs from one process to the next: times and memory."""
    return {key: value for key, value in facts.items() if key not in ("seconds", "provenance")}


def names(folder):
    """Every file but a test's own method."""
    return sorted(path.name for path in folder.iterdir() if path.name not in ("__pycache__", "faulty.py"))


def clear(folder):
    for path in folder.glob("*net*"):
        path.unlink()


def clear_error(status, said, *words):
    """One line that names cause and cure, and no traceback."""
    assert status == 1 and "Traceback" not in said, said
    line = said.strip().splitlines()[-1]
    assert all(word in line for word in words), line


def altered(content, place):
    """The same bytes but for one bit, at a fraction of their length."""
    position = int(place * len(content))
    return content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]
