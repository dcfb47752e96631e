"""Estimate the GPU hours of a configuration's trainings from the operations and FLOPs of one step.

    python benchmarks/gpu_estimate.py                        # config.yaml
    python benchmarks/gpu_estimate.py --configfile my.yaml

A step costs a launch for every operation and the time of its floating-point operations, one run at
a time; audits and the evaluations between epochs are left out. Needs no GPU. Where one is at hand,
`benchmarks/gpu.py` measures instead.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import cache
from pathlib import Path

from costs import ROOT, SIZES, noise
from throughput import steps_of
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.plan import epochs_before
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import RunSpec

LAUNCH, RATE = (
    5e-6,
    30e12,
)  # seconds an operation; floating-point operations a second, in IEEE float32


def main(words: list[str] | None = None) -> None:
    """Print the hours of every setting, and of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configfile", type=Path, default=ROOT / "config.yaml")
    grid = read_grid(load_config(parser.parse_args(words).configfile)[0])
    hours = dict.fromkeys(grid.settings, 0.0)
    for key in grid.all_run_keys():
        if key not in grid.duplicate_runs:
            hours[key.setting] += training_seconds(grid, key) / 3600
    for setting, found in (hours | {"in all": sum(hours.values())}).items():
        print(f"{setting:<28}{found:8.2f} h")


def training_seconds(grid: Grid, key: RunKey) -> float:
    """Return the estimated seconds of the steps of a run's training, less those of the run that it
    goes on from.
    """
    spec = grid.spec(key)
    epochs = spec.last_epoch - epochs_before(grid, key)
    steps = -(-SIZES[spec.dataset][2] // spec.batch_size)
    return epochs * steps * step_seconds(replace(spec, seed=0, lr=1e-3, epochs=1, snapshot=None))


class Seconds(TorchDispatchMode):
    """Add up what operations would cost."""

    total = 0.0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returned = function(*args, **(kwargs or {}))
        count = flop_registry.get(function._overloadpacket, lambda *args, **kwargs: 0)
        self.total += (
            LAUNCH * (not function.is_view)
            + count(*args, **(kwargs or {}), out_val=returned) / RATE
        )
        return returned


@cache
def step_seconds(spec: RunSpec) -> float:
    """Return the estimated seconds of a training step, counted in one on the CPU."""
    shape, classes, *_ = SIZES[spec.dataset]
    steps = steps_of(spec, noise(shape, classes, 2 * spec.batch_size, 1))
    next(steps)  # draws the epoch's order
    with Seconds() as seconds:
        next(steps)
    return seconds.total


if __name__ == "__main__":
    main()
