"""Measure the time per epoch, the time per audit and the peak memory of every job, from which the
workflow estimates hours.

    python benchmarks/costs.py                          # jobs of the configurations, on the CPU
    python benchmarks/costs.py --device cuda            # on a GPU
    python benchmarks/costs.py --configfile my.yaml     # jobs of another configuration
    python benchmarks/costs.py --only ep digits         # only rows that contain these words

A row of benchmarks/costs.json is a network with its data and batch size, a method, and whether its
blocks are frozen or left out. A row that exists is measured again only with --again. The time of an
epoch is the median time of a training step times the number of steps, plus the time of one
evaluation of the whole test set, which is extrapolated from one batch. Audits are timed for
backpropagation only, long audits on an eighth of their images. Every row is measured in a new
process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fa_audit.audit.batch_norm import batch_norm_twice
from fa_audit.audit.diagnose import diagnose
from fa_audit.audit.inputs import BATCH_SIZE, BATCHES
from fa_audit.audit.run_credits import measure_credits
from fa_audit.core.files import read_json, write_json
from fa_audit.core.numerics import set_numerics
from fa_audit.core.randomness import generator
from fa_audit.core.registry import call
from fa_audit.data import DATASETS
from fa_audit.data.dataset import Dataset, evaluation_batches, pad, training_batches
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.costs import CONTEXT_MB, DECIDING, cost_key
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import RunSpec
from fa_audit.networks.trace import accuracy_of, untouched
from fa_audit.training.learner import Learner, build, learn
from fa_audit.training.loop import observe

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "benchmarks/costs.json"
SIZES = {  # image shape, classes, training and test images
    "digits": ((1, 8, 8), 10, 1437, 360),
    "cifar10": ((3, 32, 32), 10, 50000, 10000),
    "cifar100": ((3, 32, 32), 100, 50000, 10000),
    "synthetic_teacher": ((1, 4, 4), 10, 2000, 2000),
}
CONFIGURATIONS = [
    ROOT / name for name in ("config.yaml", "configs/demo.yaml", "configs/gallery.yaml")
]
STEPS, ENOUGH = 20, 1.5  # steps to time; stop earlier after so many seconds
LONG, SHARE = 0.2, 8  # if a step takes more seconds, audits are timed on 1 / SHARE of their images


def main() -> None:
    """Measure the missing rows. Each is saved when it is done: an interruption loses only one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--configfile", type=Path, nargs="+", default=CONFIGURATIONS)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    kind = "cpu" if torch.device(options.device).type == "cpu" else "gpu"
    stored = read_json(STORED).get(kind, []) if STORED.exists() else []
    there = set() if options.again else {cost_key(row) for row in stored}
    missing, left = [], 0
    for row, spec in asked_rows(options.configfile):
        if cost_key(row) in there:
            continue
        if all(word in json.dumps(row) for word in options.only):
            missing.append((row, spec))
        else:
            left += 1
    started = start_seconds() if missing else 0.0
    for row, spec in missing:
        # Peak memory is that of a process, so each row gets a new process.
        with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as pool:
            costs = pool.submit(measured, spec, options.device).result()
        store(kind, row | costs | {"start_seconds": started})
        print(json.dumps(row), costs, flush=True)
    print(f"{len(missing)} rows measured now, {left} still to measure")


def asked_rows(configurations: Iterable[Path]) -> list[tuple[dict[str, Any], RunSpec]]:
    """Return every row that configurations need, with the specification that is timed for it.

    Every network also gets a row for backpropagation, which includes the time of an audit.
    """
    rows = {}
    for path in configurations:
        grid = read_grid(load_config(path)[0])
        for key in grid.all_run_keys():
            plain = replace(grid.spec(key), penalty=0.0, seed=0, random_targets=False)
            for timed in (replace(plain, method="bp", frozen_blocks=0, shallow=False), plain):
                values = timed.to_dict()
                row = {name: values[name] for name in DECIDING}
                rows.setdefault(cost_key(values), (row, timed))
    return list(rows.values())


def store(kind: str, row: Mapping[str, Any]) -> None:
    """Write a row into benchmarks/costs.json in place of the one for the same job.

    Args:
        kind: the kind of device, ``cpu`` or ``gpu``.
        row: the fields that `DECIDING` names, and the measured costs.
    """
    stored = read_json(STORED) if STORED.exists() else {}
    rows = {cost_key(old): old for old in stored.get(kind, [])} | {cost_key(row): dict(row)}
    write_json(STORED, stored | {kind: list(rows.values())})


def start_seconds() -> float:
    """Return the CPU time that a process needs before it trains; nearly all is torch's import."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import fa_audit.training.run_files"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


def machine(device: str) -> str:
    name = platform.machine() if device == "cpu" else torch.cuda.get_device_name(device)
    return f"{name}, 1 thread, torch {torch.__version__}"


def measured(spec: RunSpec, device: str) -> dict[str, Any]:
    """Return the measured entries of a row: times in seconds, memory in MB (2**20 bytes), and the
    machine.
    """
    set_numerics(threads=1)
    data = dataset_of(spec).to(device)
    learner = build(spec, data.image_shape, data.classes).to(device)
    step = step_seconds(learner, data, device)
    steps = -(-len(data.train_labels) // spec.batch_size)
    found: dict[str, Any] = {
        "seconds_per_epoch": round(step * steps + observe_seconds(learner, data, device), 3)
    }
    if (spec.method, spec.frozen_blocks, spec.shallow) == ("bp", 0, False):
        found["seconds_per_audit"] = round(
            audit_seconds(learner, data, device, SHARE if step > LONG else 1), 2
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # kilobytes on Linux
    if device != "cpu":
        found["gpu_memory_mb"] = torch.cuda.max_memory_reserved(device) // 2**20 + CONTEXT_MB
    return found | {"memory_mb": peak, "machine": machine(device)}


def dataset_of(spec: RunSpec) -> Dataset:
    """Return random images of a registered data set's size, or a user's own data set itself."""
    if spec.dataset in SIZES:
        return noise(*SIZES[spec.dataset])
    return call("dataset", DATASETS, spec.dataset, Dataset, Path("data"))


def noise(shape: tuple[int, ...], classes: int, train_size: int, test_size: int) -> Dataset:
    """Make a data set of random images: their content does not change the time."""
    arrays: dict[str, Any] = {}
    torch.manual_seed(0)
    for part, count in (("train", train_size), ("test", test_size)):
        arrays[f"{part}_images"] = torch.randint(256, (count, *shape), dtype=torch.uint8)
        arrays[f"{part}_labels"] = torch.randint(classes, (count,))
    how = {
        "scale": 255,
        "mean": (0.5,) * shape[0],
        "std": (0.25,) * shape[0],
        "padding": 4,
        "flip": True,
    }
    return Dataset(name="noise", classes=classes, **arrays, **how)


def step_seconds(learner: Learner, data: Dataset, device: str) -> float:
    """Return the median time of a training step with data loading, after one step to warm up."""
    step = stepping(learner, data, device)
    step()
    timed = [seconds(step, device)]
    while len(timed) < STEPS and sum(timed) < ENOUGH:
        timed.append(seconds(step, device))
    return median(timed)


def stepping(learner: Learner, data: Dataset, device: str) -> Callable[[], None]:
    """Return a function that runs the learner's next training step."""
    optimiser, randomness = learner.optimiser(), generator(0, "benchmark")
    padded, noise = pad(data.train_images, data.padding), generator(0, "noise", device=device)
    learner.train_mode()

    def endless() -> Iterator[tuple[Tensor, Tensor]]:
        # One epoch may have fewer batches than there are steps to time.
        while True:
            yield from training_batches(data, padded, learner.spec.batch_size, randomness)

    batches = endless()

    def step() -> None:
        x, labels = next(batches)
        optimiser.zero_grad()
        learn(learner, x, labels, noise)
        optimiser.step()

    return step


def observe_seconds(learner: Learner, data: Dataset, device: str) -> float:
    """Return the time of an epoch's trajectory rows: all measurements on the first test batch, and
    only the accuracy on the others.
    """
    test = evaluation_batches(data)
    batch = test[:1]
    first = seconds(lambda: observe(learner, batch, epoch=1), device)
    with untouched(learner.network):
        return first + (len(test) - 1) * median(
            seconds(lambda: accuracy_of(learner.network, batch), device) for _ in range(3)
        )


def audit_seconds(learner: Learner, data: Dataset, device: str, share: int) -> float:
    """Estimate the seconds of an audit: run the protocol on one in `share` of its images and scale
    the time up; run `batch_norm_twice` on all of them.
    """
    batches = evaluation_batches(data, BATCH_SIZE // share, BATCHES)

    def protocol() -> None:
        diagnose(learner.network, batches[:1], None, stability_batches=batches)
        measure_credits(learner, *batches[0])

    twice = seconds(lambda: batch_norm_twice(learner, data, epochs=1), device)
    return share * seconds(protocol, device) + twice


def seconds(work: Callable[[], object], device: str) -> float:
    """Time a call; on a CPU by the process's CPU time, which other processes do not change."""
    if device == "cpu":
        start = time.process_time()
        work()
        return time.process_time() - start
    start = time.perf_counter()
    work()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
