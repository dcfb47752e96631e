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
SMALL = "--width 8 --depth 2 --batch-size 256 --seed 1"


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

    def start(self, folder, run=RUN, epochs=EPOCHS, **faults):
        words = f"train {run} net.safetensors --data {self.data} --epochs {epochs} {SMALL}"
        return self.server.start(folder, *words.split(), **faults)

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
            for path in folder.glob("*net*"):
                path.unlink()
            delay /= 2

    def check_same(self, folder, run=RUN, epochs=EPOCHS):
        """Check that all results are there with the undisturbed bits, and nothing else is left."""
        ours, theirs = results(folder), results(self.undisturbed(run, epochs)[0])
        assert ours == theirs

    def rerun_to_the_same_bits(self, folder, run=RUN, epochs=EPOCHS):
        """Check that results under their final names are whole, and run the same command once more
        to the undisturbed ones.
        """
        whole = results(self.undisturbed(run, epochs)[0])
        found = results(folder, whole)
        assert found == {name: whole[name] for name in found}
        status, said = self.train(folder, run, epochs)
        assert status == 0, said
        self.check_same(folder, run, epochs)


def results(folder, names=None):
    """Files by their names, of `names` or all; of a JSON file what lasts, of a lock its name."""
    found = {}
    for path in folder.iterdir():
        if names is None or path.name in names:
            content = b"" if path.suffix == ".lock" else path.read_bytes()
            found[path.name] = lasting(json.loads(content)) if path.suffix == ".json" else content
    return found


def lasting(facts):
    """Leave out what differs from one process to the next: times, memory, and the digest that
    contains them.
    """
    return {name: facts[name] for name in facts if name not in ("seconds", "provenance", "content")}
