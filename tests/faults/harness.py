"""What the fault tests share: trainings by `fa-audit train`, undisturbed and disturbed, and how
they compare.
"""

import json
import os
import random
import time

from fa_audit.data.dataset import save_dataset
from fa_audit.data.digits import digits

RUN, EPOCHS = "dfa+penalty1e-2", 8


def at_random(count, *purpose):
    """Draw fractions in [0, 1), the same in every session."""
    draw = random.Random(f"20260621 {purpose}")
    return [round(draw.random(), 3) for _ in range(count)]


class Disturbed:
    """Trainings of small networks, each compared with an undisturbed one."""

    def __init__(self, server, folder):
        self.server, self.folder, self.known = server, folder, {}
        self.data = folder / "digits.safetensors"
        save_dataset(digits(folder), self.data)

    def arguments(self, run=RUN, epochs=EPOCHS, data=None):
        options = ["--width", 8, "--depth", 2, "--batch-size", 256, "--seed", 1]
        return [
            "train",
            run,
            "net.safetensors",
            "--data",
            data or self.data,
            "--epochs",
            epochs,
            *options,
        ]

    def start(self, folder, run=RUN, epochs=EPOCHS, **faults):
        return self.server.start(folder, *self.arguments(run, epochs), **faults)

    def train(self, folder, run=RUN, epochs=EPOCHS, **faults):
        """Train to the end, from the start or from where another training was interrupted; return
        status, output.
        """
        return self.server.wait(self.start(folder, run, epochs, **faults))

    def undisturbed(self, run=RUN, epochs=EPOCHS):
        """Return a folder with the results of an undisturbed training, and its seconds."""
        if (run, epochs) not in self.known:
            folder = self.folder / f"{run}-{epochs}"
            folder.mkdir()
            start = time.monotonic()
            status, said = self.train(folder, run, epochs)
            assert status == 0, said
            self.known[run, epochs] = folder, time.monotonic() - start
        return self.known[run, epochs]

    def kill(self, folder, how, fraction, run=RUN):
        """Send a training a signal after a fraction of the time that it needs; earlier if that is
        too late.
        """
        delay = fraction * self.undisturbed(run)[1]
        while True:
            process = self.start(folder, run)
            time.sleep(delay)
            os.kill(process, how)
            status, said = self.server.wait(process)
            if status == -how:
                return
            assert status == 0, said
            clear(folder)
            delay /= 2

    def check_whole(self, folder, run=RUN, epochs=EPOCHS):
        """Check that every result under its final name is whole."""
        whole = self.undisturbed(run, epochs)[0]
        for name in ("net.safetensors", "net.csv"):
            assert (
                not (folder / name).exists()
                or (folder / name).read_bytes() == (whole / name).read_bytes()
            ), name
        if (folder / "net.json").exists():
            json.loads((folder / "net.json").read_text())

    def check_same(self, folder, run=RUN, epochs=EPOCHS):
        """Check that all results are there with the undisturbed bits, and nothing else is left."""
        whole = self.undisturbed(run, epochs)[0]
        present = [sorted(path.name for path in place.iterdir()) for place in (folder, whole)]
        assert present[0] == present[1]
        self.check_whole(folder, run, epochs)
        ours, theirs = (
            lasting(json.loads((place / "net.json").read_text())) for place in (folder, whole)
        )
        assert ours == theirs

    def rerun_to_the_same_bits(self, folder, run=RUN, epochs=EPOCHS):
        """Run the same command once more, compare with the undisturbed results, and return its
        output.
        """
        self.check_whole(folder, run, epochs)
        status, said = self.train(folder, run, epochs)
        assert status == 0, said
        self.check_same(folder, run, epochs)
        return said


def lasting(facts):
    """Leave out what differs from one process to the next: times, memory, and the digest that
    contains them.
    """
    return {
        key: value
        for key, value in facts.items()
        if key not in ("seconds", "provenance", "content")
    }


def clear(folder):
    for path in folder.glob("*net*"):
        path.unlink()


def clear_error(status, said, *words):
    """Check for one line with these words and no traceback; return it."""
    assert status == 1 and "Traceback" not in said, said
    line = said.strip().splitlines()[-1]
    assert all(word in line for word in words), line
    return line
