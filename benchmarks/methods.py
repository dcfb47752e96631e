"""Measure the time of a training step of every method, relative to backpropagation in the same run.

Writes benchmarks/methods.json, which docs/methods.md quotes. Uses one thread, the paper's network
(resmlp, d = 256, L = 4, batch 128) and random pixels: nothing is downloaded, and the time does not
depend on the images.

    python benchmarks/methods.py [--repeats N] [--steps N]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from pathlib import Path

import torch

from fa_audit.core.files import write_json
from fa_audit.core.numerics import set_numerics
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.training.learner import Learner, build, learn

OUTPUT = Path(__file__).with_suffix(".json")
BATCH, SHAPE, CLASSES = 128, (3, 32, 32), 10
RESMLP = (("depth", 4), ("residual", True), ("terminal_norm", True), ("width", 256))


def learner_of(method: str) -> Learner:
    """Build an untrained learner, in the phase that its method has halfway through a training."""
    spec = RunSpec(
        dataset="random", architecture="resmlp", architecture_options=RESMLP, method=method
    )
    learner = build(spec, SHAPE, CLASSES)
    learner.method.begin_epoch(learner.state, 0.5)
    learner.train_mode()
    return learner


def seconds_per_step(method: str, steps: int) -> float:
    """Return the mean wall time of a training step and update, after two steps to warm up."""
    randomness = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, *SHAPE, generator=randomness)
    labels = torch.randint(CLASSES, (BATCH,), generator=randomness)
    learner = learner_of(method)
    optimiser = learner.optimiser()
    start = 0.0
    for step in range(steps + 2):
        if step == 2:
            start = time.perf_counter()
        optimiser.zero_grad()
        learn(learner, x, labels, randomness)
        optimiser.step()
    return (time.perf_counter() - start) / steps


def measure(repeats: int, steps: int) -> dict[str, dict[str, float]]:
    """Return each method's milliseconds per step and ratio to BP: medians over rounds that time
    every method once.
    """
    times: dict[str, list[float]] = {name: [] for name in METHODS}
    for _ in range(repeats):
        for name in METHODS:
            times[name].append(seconds_per_step(name, steps))
    found = {}
    for name, own in times.items():
        ratios = [t / bp for t, bp in zip(own, times["bp"], strict=True)]
        found[name] = {
            "milliseconds": round(1000 * statistics.median(own), 2),
            "relative_to_bp": round(statistics.median(ratios), 2),
        }
    return found


def main() -> None:
    """Measure every method, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    set_numerics(threads=1)
    # Random pixels saturate some losses; the denormal numbers that result take ten times as long.
    torch.set_flush_denormal(True)
    measured = measure(options.repeats, options.steps)
    for name, entry in measured.items():
        print(f"{name:<16} {entry['milliseconds']:8.2f} ms   {entry['relative_to_bp']:6.2f} x bp")
    about = {
        "machine": platform.machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "network": "resmlp d=256 L=4",
        "batch": BATCH,
        "steps": options.steps,
        "repeats": options.repeats,
    }
    write_json(OUTPUT, {"about": about, "methods": measured})
    print(f"written: {OUTPUT.name}")


if __name__ == "__main__":
    main()
