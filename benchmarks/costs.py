"""Measure the time per epoch and per audit, and the peak memory, of every network: what the workflow plans with.

    python benchmarks/costs.py                          # every network of config.yaml, on the CPU
    python benchmarks/costs.py --device cuda            # on a GPU
    python benchmarks/costs.py --configfile my.yaml

Only backpropagation is timed: the time of another method is a multiple of it (`relative_time`). The time of an epoch is
the median time of a training step times the number of steps, plus one evaluation of the whole test set. Memory is the
peak of a process that trains and audits. Results go into benchmarks/costs.json, each with its machine; a network that
is already there is measured again only with --again.
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
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fa_audit.audit.credit_metrics import measure_credits
from fa_audit.audit.diagnose import BATCH_SIZE, BATCHES, diagnose
from fa_audit.core.files import read_json, write_json
from fa_audit.core.numerics import set_numerics
from fa_audit.core.randomness import generator
from fa_audit.core.registry import call
from fa_audit.data import DATASETS
from fa_audit.data.dataset import Dataset, evaluation_batches, pad, training_batches
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.costs import NETWORK, cost_key, network_of
from fa_audit.experiments.grid import Grid, read_grid
from fa_audit.experiments.spec import RunSpec
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
STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--configfile", type=Path, default=ROOT / "config.yaml")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    kind = "cpu" if torch.device(options.device).type == "cpu" else "gpu"
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    for network, spec in networks(options.configfile).items():
        others = [e for e in stored.get(kind, []) if {name: e[name] for name in NETWORK} != network_of(spec)]
        if len(others) < len(stored.get(kind, [])) and not options.again:
            continue
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:  # a peak of its own for each
            costs = pool.submit(measured, spec, options.device).result()
        stored[kind] = [*others, network_of(spec) | costs | {"machine": machine(options.device)}]
        print(network, costs, flush=True)
        write_json(STORED, stored)


def networks(configfile: Path) -> dict[str, RunSpec]:
    """Return the specification of every distinct network of a configuration, to be trained by backpropagation."""
    grid: Grid = read_grid(load_config(configfile)[0])
    specs = {}
    for key in grid.all_run_keys():
        spec = grid.spec(key)
        specs.setdefault(json.dumps(network_of(spec)), replace(spec, method="bp", penalty=0.0, frozen_blocks=0))
    return {name: replace(spec, shallow=False, random_targets=False) for name, spec in specs.items()}


def store(kind: str, row: Mapping[str, Any]) -> None:
    """Write a row into benchmarks/costs.json in place of the one for the same job.

    Args:
        kind: of the device, one of `DEVICES`.
        row: with the fields `DECIDING`, and what `Costs` reads.
    """
    stored = read_json(STORED) if STORED.exists() else {}
    rows = {cost_key(old): old for old in stored.get(kind, [])} | {cost_key(row): dict(row)}
    write_json(STORED, stored | {kind: list(rows.values())})


def start_seconds() -> float:
    """Return the CPU time that a process needs before it trains: imports, nearly all of it torch's."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import fa_audit.training.run_files"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


def machine(device: str) -> str:
    threads = f"1 thread, torch {torch.__version__}"
    return f"{platform.machine()}, {threads}" if device == "cpu" else f"{torch.cuda.get_device_name(device)}, {threads}"


def measured(spec: RunSpec, device: str) -> dict[str, float]:
    """Measure seconds per epoch and per audit, and the peak memory in MB (2**20 bytes)."""
    set_numerics(threads=1)
    data = dataset_of(spec).to(device)
    learner = build(spec, data.image_shape, data.classes).to(device)
    steps = -(-len(data.train_labels) // spec.batch_size)
    evaluation = seconds(lambda: observe(learner, evaluation_batches(data), epoch=1, train_loss=0.0), device)
    per_epoch = step_seconds(learner, data, device) * steps + evaluation
    per_audit = seconds(lambda: whole_audit(learner, data), device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # kilobytes on Linux
    return {"seconds_per_epoch": round(per_epoch, 3), "seconds_per_audit": round(per_audit, 2), "memory_mb": peak}


def dataset_of(spec: RunSpec) -> Dataset:
    """Return random images of the size of a registered data set, or the data set where it is the user's own."""
    if spec.dataset in SIZES:
        return noise(*SIZES[spec.dataset])
    return call("dataset", DATASETS, spec.dataset, Dataset, Path("data"))


def noise(shape: tuple[int, ...], classes: int, train_size: int, test_size: int) -> Dataset:
    """Make a data set of random images: their content does not change the time."""
    arrays: dict[str, Any] = {}
    for part, count in (("train", train_size), ("test", test_size)):
        arrays[f"{part}_images"] = torch.randint(256, (count, *shape), dtype=torch.uint8)
        arrays[f"{part}_labels"] = torch.randint(classes, (count,))
    how = {"scale": 255, "mean": (0.5,) * shape[0], "std": (0.25,) * shape[0], "padding": 4, "flip": True}
    return Dataset(name="noise", classes=classes, **arrays, **how)


def step_seconds(learner: Learner, data: Dataset, device: str) -> float:
    """Return the median time of a training step, data loading included, after one step to warm up."""
    optimiser, randomness = learner.optimiser(), generator(0, "benchmark")
    batches = training_batches(data, pad(data.train_images, data.padding), learner.spec.batch_size, randomness)
    learner.train_mode()

    def step() -> None:
        x, labels = next(batches)
        optimiser.zero_grad()
        learn(learner, x, labels, randomness)
        optimiser.step()

    return median([seconds(step, device) for _ in range(STEPS + 1)][1:])


def whole_audit(learner: Learner, data: Dataset) -> None:
    batches = evaluation_batches(data, BATCH_SIZE, BATCHES)
    diagnose(learner.network, batches, None)
    measure_credits(learner, *batches[0])


def audit_seconds(learner: Learner, data: Dataset, device: str, share: int) -> float:
    return share * seconds(lambda: whole_audit(learner, data), device)


def seconds(work: Callable[[], object], device: str) -> float:
    """Time a call: on a CPU by the CPU time of its one thread, which other processes do not change."""
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
