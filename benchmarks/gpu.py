"""Check and measure one GPU in at most ten minutes, the most telling parts first; every bar is met
or missed.

    python benchmarks/gpu.py                      # the GPU, on the networks of config.yaml
    python benchmarks/gpu.py --write              # and store what the workflow plans with in
    benchmarks/costs.json python benchmarks/gpu.py --device cpu --tiny  # all that needs no GPU, in
    seconds: a test of this script

Nobody else may use the GPU meanwhile. Pixels are random: nothing is downloaded. What there is no
time for is named and left out. Where nvidia-cuda-mps-control is installed, runs side by side are
measured with and without MPS, which is started and stopped here.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import costs
import torch
from costs import ROOT, STORED, audit_seconds, dataset_of, machine, seconds
from throughput import BATCH, RESMLP, bar, random_images, report_machine, steps_of
from torch.utils._python_dispatch import TorchDispatchMode

from fa_audit.audit.credit_metrics import IN_DOUBLE
from fa_audit.audit.run_audit import audit
from fa_audit.core.errors import AuditError, first_line
from fa_audit.core.files import read_json
from fa_audit.core.numerics import set_numerics
from fa_audit.data.data_file import checksum
from fa_audit.data.dataset import Dataset, evaluation_batches
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.costs import CONTEXT_MB, DECIDING, Costs, cost_key, read_costs
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES
from fa_audit.training.checkpoint import learner_tensors, load_checkpoint, save_checkpoint
from fa_audit.training.learner import Learner
from fa_audit.training.loop import observe, train

CONTROL, PIPE = "nvidia-cuda-mps-control", "CUDA_MPS_PIPE_DIRECTORY"
TOLERANCE = 1e-9  # between float64 numbers of two devices
FASTER = 5  # times one core of the CPU in benchmarks/costs.json
TOGETHER, SHARED = (
    8,
    3,
)  # so many runs with MPS or more have so many times the throughput of one run
NO_SLOWER = 0.9  # times the throughput of one run: every other number of runs
ALONE_HOURS, BEST_HOURS = (
    10,
    3,
)  # the grid of config.yaml: one run at a time, and as many as are fastest
ROWS_SHARE = 0.6  # of the time is for the networks, at most
REPEATED = (
    ("dfa", "resmlp"),
    ("credit_bridge", "resmlp"),
    ("brsf", "bn_cnn"),
    ("bp", "small_resnet"),
    ("fa", "vit_mini"),
)
AUDITED = (("dfa", "resmlp"), ("credit_bridge", "resmlp"), ("kolen_pollack", "bn_cnn"))
TINY = {
    "dataset": "digits",
    "architecture": {"name": "resmlp", "width": 8, "depth": 2},
    "epochs": 2,
    "seeds": [1],
}


@dataclass
class Bench:
    """What is measured, and what is known so far.

    Attributes:
        device: where runs compute.
        tiny: whether sizes are those of a test.
        grid: the runs that the workflow would train.
        start: of the benchmark, by `time.monotonic`.
        limit: seconds that it may take.
        write: whether rows go into the stored costs.
        rows: what was measured, by `name_of` a run.
        speeds: samples per second, by the number of runs side by side and whether MPS runs.
    """

    device: str
    tiny: bool
    grid: Grid
    start: float
    limit: float
    write: bool
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    speeds: dict[tuple[int, bool], float] = field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        return torch.device(self.device).type == "cuda"

    @property
    def has_mps(self) -> bool:
        return self.on_gpu and shutil.which(CONTROL) is not None

    def passed(self) -> float:
        return time.monotonic() - self.start

    def spec(self, method: str = "dfa", architecture: str = "resmlp") -> RunSpec:
        """Return a run on random images: of the paper's network or, in a test, of a tiny one."""
        paper = RESMLP if architecture == "resmlp" else ()
        options = (("depth", 2), ("width", 8)) if self.tiny else paper
        names = {"dataset": "random", "architecture": architecture, "method": method}
        return RunSpec(
            **names, architecture_options=options, batch_size=16 if self.tiny else BATCH, epochs=1
        )

    def sizes(self, batches: int) -> tuple[int, int]:
        """Return how many training images make so many batches, and how many test images there are
        with them.
        """
        return batches * self.spec().batch_size, 128 if self.tiny else 10 * BATCH


@contextmanager
def failing(name: str) -> Iterator[None]:
    """Report what fails as a bar that is missed, and go on."""
    try:
        yield
    except (AuditError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        bar(name, f"failed: {first_line(error)}", False)


# --- one step ------------------------------------------------------------------------------------------------------


def report_waiting(bench: Bench) -> None:
    """Take a step of every method on every architecture that fails where the host waits for the
    GPU.
    """
    if not bench.on_gpu:
        print("steps under torch.cuda.set_sync_debug_mode('error'): need a GPU")
        return
    data, waiting = random_images(*bench.sizes(4)).to(bench.device), {}
    pairs = [(method, architecture) for architecture in ARCHITECTURES for method in METHODS]
    for method, architecture in pairs:
        steps = steps_of(bench.spec(method, architecture), data)
        next(steps), next(steps)  # the first one moves the epoch's draws
        torch.cuda.set_sync_debug_mode("error")
        try:
            next(steps)
        except RuntimeError as error:
            waiting[f"{method} on {architecture}"] = first_line(error)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for name, error in waiting.items():
        print(f"  {name}: {error}")
    bar("no step waits for the GPU", f"{len(pairs) - len(waiting)} of {len(pairs)}", not waiting)


class Operations(TorchDispatchMode):
    """Count the operations that compute something: on a GPU a kernel each, or a few."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += not function.is_view
        return function(*args, **(kwargs or {}))


def kernels(steps: Iterator[Learner], on_gpu: bool) -> str:
    """Count the kernels of a step with torch's profiler; where it sees none, the operations."""
    if on_gpu:
        with suppress(RuntimeError, AssertionError):  # where the profiler may not look
            with torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CUDA]
            ) as profile:
                next(steps)
                torch.cuda.synchronize()
            if found := sum(event.device_type.name == "CUDA" for event in profile.events()):
                return f"{found} kernels"
    with Operations() as operations:
        next(steps)
    return f"{operations.count} operations"


# --- the same bits -------------------------------------------------------------------------------------------------

_barrier: Any = None


def _share(barrier: Any, environment: dict[str, str]) -> None:
    global _barrier
    _barrier = barrier
    os.environ.update(environment)
    set_numerics(threads=1)


def together(count: int, task: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run a task in `count` processes at once; return the result of each, or raise the first
    failure.
    """
    context = multiprocessing.get_context(
        "forkserver"
    )  # which has imported torch, and knows of no GPU yet
    context.set_forkserver_preload(["torch", "fa_audit.training.loop"])
    mps = (
        {PIPE: os.environ[PIPE]} if PIPE in os.environ else {}
    )  # the server's environment is older
    with ProcessPoolExecutor(count, context, _share, (context.Barrier(count), mps)) as pool:
        futures = [pool.submit(task, *arguments) for _ in range(count)]
        return [future.result() for future in futures]


def digests(specs: list[RunSpec], sizes: tuple[int, int], device: str) -> list[str]:
    """Train runs beside other processes; return a SHA-256 of everything that each of them has
    learned.
    """
    data = random_images(*sizes)
    _barrier.wait(120)
    learned = [learner_tensors(train(spec, data, device=device).learner) for spec in specs]
    parts = [
        "".join(checksum(t.detach().cpu()) for _, t in sorted(tensors.items()))
        for tensors in learned
    ]
    return [hashlib.sha256(part.encode()).hexdigest() for part in parts]


def report_repeats(bench: Bench) -> None:
    """Train the same runs in two processes, one after the other, and in eight at once."""
    specs = [bench.spec(*pair) for pair in (REPEATED[:2] if bench.tiny else REPEATED)]
    arguments, count = (
        (digests, specs, bench.sizes(2 if bench.tiny else 20), bench.device),
        2 if bench.tiny else 8,
    )
    (one,) = together(1, *arguments)
    ways = {"in two processes": (1, False), f"beside {count - 1} others": (count, False)}
    ways |= {f"beside {count - 1} others with MPS": (count, True)} if bench.has_mps else {}
    for way, (processes, with_mps) in ways.items():
        with failing(f"the same bits {way}"), pipe(with_mps):
            found = together(processes, *arguments)
            same = sum(all(other[i] == digest for other in found) for i, digest in enumerate(one))
            bar(f"the same bits {way}", f"{same} of {len(specs)} runs", same == len(specs))


# --- audits --------------------------------------------------------------------------------------------------------


def report_audits(bench: Bench) -> None:
    """Train on the CPU, with all its cores, and audit the checkpoint on both devices."""
    torch.set_num_threads(1 if bench.tiny else os.cpu_count() or 1)
    data = random_images(*bench.sizes(2 if bench.tiny else 20))
    with tempfile.TemporaryDirectory() as folder:
        for method, architecture in AUDITED[:2] if bench.tiny else AUDITED:
            path = Path(folder) / "checkpoint.safetensors"
            save_checkpoint(train(bench.spec(method, architecture), data).learner, path)
            (verdicts, numbers), (others, found) = (
                audit_on(path, data, where) for where in ("cpu", bench.device)
            )
            same = verdicts == others and numbers.keys() == found.keys()
            away = max(abs(value - found.get(name, 0.0)) for name, value in numbers.items())
            said = f"{others}, {len(found)} float64 numbers within {away:.1e}"
            bar(
                f"{method} on {architecture} audited on both devices",
                said,
                same and away <= TOLERANCE,
            )
    torch.set_num_threads(1)


def audit_on(path: Path, data: Dataset, device: str) -> tuple[str, dict[tuple[int, str], float]]:
    """Return the verdicts of an audit, and what it computes in float64, by block and name."""
    report = audit(
        load_checkpoint(path, device),
        data.to(device),
        0.3,
        own_frozen=("frozen", 0.2),
        bp_frozen_acc=0.2,
    )
    numbers = {
        (i, name): block[name].value for i, block in enumerate(report.credit) for name in IN_DOUBLE
    }
    return f"{report.three_check_verdict}, {report.verdict}", {
        k: v for k, v in numbers.items() if v is not None
    }


# --- every network and method
# --------------------------------------------------------------------------------------


def name_of(spec: RunSpec) -> str:
    """Name what decides the cost of a run's epoch."""
    options = [f"{name}={value}" for name, value in spec.architecture_options]
    marks = ["frozen"] * bool(spec.frozen_blocks) + ["shallow"] * spec.shallow
    return " ".join(
        [spec.dataset, spec.architecture, *options, f"batch={spec.batch_size}", spec.method, *marks]
    )


def trainings(grid: Grid) -> list[RunSpec]:
    """Return the specification of every training of a grid."""
    return [grid.spec(key) for key in grid.all_run_keys() if key not in grid.duplicate_runs]


def audits(grid: Grid) -> list[RunSpec]:
    """Return the specification of every run of a grid that is audited."""
    return [
        grid.spec(key) for setting in grid.settings.values() for key in setting.run_keys("runs")
    ]


@cache
def data_on(device: str, dataset: str) -> Dataset:
    return dataset_of(RunSpec(dataset=dataset, architecture="resmlp", method="bp")).to(device)


def measured(bench: Bench, spec: RunSpec, is_audited: bool) -> tuple[dict[str, float], str]:
    """Measure the seconds of an epoch and of an audit and the GPU's memory in MB (2**20 bytes), and
    count kernels.
    """
    data, count = data_on(bench.device, spec.dataset), 2 if bench.tiny else 20
    if bench.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    steps = steps_of(spec, data)
    next(steps), next(steps)
    step = seconds(lambda: [next(steps) for _ in range(count)], bench.device) / count
    counted, learner, test = kernels(steps, bench.on_gpu), next(steps), evaluation_batches(data)
    row = min(seconds(lambda: observe(learner, test, epoch=1), bench.device) for _ in range(2))
    found = {
        "seconds_per_epoch": round(step * -(-len(data.train_labels) // spec.batch_size) + row, 4)
    }
    if is_audited:
        found["seconds_per_audit"] = round(audit_seconds(learner, data, bench.device, 1), 3)
    if bench.on_gpu:
        found["gpu_memory_mb"] = torch.cuda.max_memory_reserved() // 2**20 + CONTEXT_MB
    return found, counted


def report_rows(bench: Bench) -> None:
    """Measure every network and method of the grid, those of most runs first."""
    specs, audited, starting = (
        trainings(bench.grid),
        set(map(name_of, audits(bench.grid))),
        costs.start_seconds(),
    )
    runs, by_name = Counter(map(name_of, specs)), {name_of(spec): spec for spec in reversed(specs)}
    for name, _ in runs.most_common():
        if bench.passed() > ROWS_SHARE * bench.limit:
            print(f"no time for {len(runs) - len(bench.rows)} of {len(runs)} networks and methods")
            return
        found, counted = measured(bench, spec := by_name[name], name in audited)
        bench.rows[name] = found
        say_row(spec, found, counted)
        if bench.write:
            values = spec.to_dict()
            row = {key: values[key] for key in DECIDING} | found
            kind = "gpu" if bench.on_gpu else "cpu"
            costs.store(kind, row | {"start_seconds": starting, "machine": machine(bench.device)})


@cache
def before() -> tuple[dict[tuple[Any, ...], float], Costs]:
    """Return the seconds per epoch on a core of the CPU by row, and the stored costs, as they were
    at the start.
    """
    rows = read_json(STORED).get("cpu", [])
    return {cost_key(row): row["seconds_per_epoch"] for row in rows}, read_costs(STORED)


def say_row(spec: RunSpec, found: dict[str, float], counted: str) -> None:
    """Print a network and method; on a GPU with bars for the time, where a CPU's is known, and for
    the memory.
    """
    print(f"{name_of(spec)}: {found['seconds_per_epoch']:.3f} s an epoch, {counted} a step", end="")
    print(
        f", audit {found['seconds_per_audit']:.2f} s" if "seconds_per_audit" in found else "",
        flush=True,
    )
    slow, stored = before()
    if "gpu_memory_mb" in found and (one_core := slow.get(cost_key(spec.to_dict()))):
        faster = one_core / found["seconds_per_epoch"]
        bar(f"  >= {FASTER}x a core of the CPU", f"{faster:.0f}x", faster >= FASTER)
    if "gpu_memory_mb" in found and (planned := stored.gpu_memory_mb(spec)):
        bar(
            f"  <= {planned} MB, as planned",
            f"{found['gpu_memory_mb']} MB",
            found["gpu_memory_mb"] <= planned,
        )


def report_context(bench: Bench) -> None:
    """Measure what CUDA itself takes of the GPU's memory in a process."""
    if not bench.on_gpu:
        print("CUDA's own memory: needs a GPU")
        return
    (own,) = together(1, context_mb, bench.device)
    bar(f"CUDA's own memory <= {CONTEXT_MB} MB, as planned", f"{own} MB", own <= CONTEXT_MB)


def context_mb(device: str) -> int:
    """Return how much more of the GPU's memory is in use than tensors take, after matrix products
    and convolutions.
    """
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    used = []
    for _ in range(2):
        said = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        used.append(sum(map(int, said.split())))
        images = torch.ones(8, 8, 32, 32, device=device)
        torch.nn.functional.conv2d(images, images[:, :, :3, :3]).flatten(1).T.matmul(
            images.flatten(1)
        )
        torch.cuda.synchronize()
    return used[1] - used[0] - torch.cuda.memory_reserved() // 2**20


# --- runs side by side
# ---------------------------------------------------------------------------------------------


def timed_training(spec: RunSpec, sizes: tuple[int, int], device: str) -> tuple[float, float]:
    """Return when a training started and ended, all processes starting it together, warmed up."""
    data = random_images(*sizes)
    train(replace(spec, epochs=1), random_images(2 * spec.batch_size), device=device)
    _barrier.wait(120)
    start = time.time()
    train(spec, data, device=device)
    return start, time.time()


def speed(bench: Bench, count: int) -> float:
    """Return the samples per second of `count` runs of DFA together, from the first start to the
    last end.
    """
    epochs, samples = (1, 64) if bench.tiny else (3, 50_000)
    spec = replace(bench.spec("dfa"), epochs=epochs)
    starts, ends = zip(
        *together(
            count, timed_training, spec, (samples, 128 if bench.tiny else 10_000), bench.device
        )
    )
    return count * epochs * samples / (max(ends) - min(starts))


def command(word: str) -> str:
    """Give the MPS that is in use a command; return what it answers."""
    return subprocess.run(
        [CONTROL], input=f"{word}\n", capture_output=True, text=True, timeout=60
    ).stdout


@contextmanager
def pipe(with_mps: bool) -> Iterator[None]:
    """Let processes find an MPS of this script's own, or none, whatever else runs on the machine."""
    theirs = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        os.environ[PIPE] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = folder
        try:
            if with_mps:
                subprocess.run([CONTROL, "-d"], check=True, timeout=30)
            yield
        finally:
            if with_mps:
                if not command("get_server_list").strip():
                    print("no process came to MPS: its server does not start here")
                command("quit")
            os.environ.clear()
            os.environ.update(theirs)


def report_throughput(bench: Bench) -> None:
    """Compare numbers of runs side by side, with and without MPS."""
    modes = [False, True] if bench.has_mps else [False]
    if not bench.has_mps:
        print(f"runs side by side with MPS: need a GPU and {CONTROL}")
    took = 0.0
    for count in (1, 2) if bench.tiny else (1, 8, 12, 4, 16):
        for with_mps in modes:
            name = f"{count} runs {'with' if with_mps else 'without'} MPS"
            if bench.passed() + took > bench.limit:
                print(f"no time for {name}")
                continue
            start = bench.passed()
            with failing(name), pipe(with_mps):
                bench.speeds[count, with_mps] = speed(bench, count)
                say_speed(bench, count, with_mps, name)
            took = bench.passed() - start


def say_speed(bench: Bench, count: int, with_mps: bool, name: str) -> None:
    """Print a throughput, compared with that of one run without MPS."""
    found, alone = bench.speeds[count, with_mps], bench.speeds.get((1, False))
    said = f"{found:,.0f} samples/s" + (f", {found / alone:.2f}x one run" if alone else "")
    least = SHARED if with_mps and count >= TOGETHER else NO_SLOWER
    if bench.on_gpu and alone:
        bar(f"{name} >= {least}x one", said, found >= least * alone)
    else:
        print(f"{name}: {said}", flush=True)


# --- the grid ------------------------------------------------------------------------------------------------------


def report_hours(bench: Bench) -> None:
    """Extrapolate to the whole grid: what was not measured counts as the mean of what was."""
    specs, reports, rows = trainings(bench.grid), audits(bench.grid), bench.rows
    trained = [
        spec.epochs * rows[name_of(spec)]["seconds_per_epoch"]
        for spec in specs
        if name_of(spec) in rows
    ]
    audited = [
        rows[name_of(spec)]["seconds_per_audit"] for spec in reports if name_of(spec) in rows
    ]
    if not (trained and audited):
        print("hours of the grid: too little was measured")
        return
    hours = (len(specs) * mean(trained) + len(reports) * mean(audited)) / 3600
    print(
        f"measured: {len(trained)} of {len(specs)} trainings, {len(audited)} of {len(reports)} audits"
    )
    bar(f"the grid <= {ALONE_HOURS} h, one run at a time", f"{hours:.1f} h", hours <= ALONE_HOURS)
    if alone := bench.speeds.get((1, False)):
        (count, with_mps), best = max(bench.speeds.items(), key=lambda item: item[1])
        name = f"the grid <= {BEST_HOURS} h, {count} runs at a time{' with MPS' * with_mps}"
        bar(name, f"{hours * alone / best:.1f} h", hours * alone / best <= BEST_HOURS)


PARTS = {
    "steps wait": report_waiting,
    "runs repeat": report_repeats,
    "devices agree": report_audits,
    "memory": report_context,
    "networks and methods": report_rows,
    "runs side by side": report_throughput,
    "the whole grid": report_hours,
}


def options_of(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes of a test")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--configfile", type=Path, default=ROOT / "config.yaml")
    parser.add_argument(
        "--write",
        type=Path,
        nargs="?",
        const=STORED,
        metavar="FILE",
        help="default: benchmarks/costs.json",
    )
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> None:
    """Run the parts while there is time."""
    options = options_of(words)
    set_numerics(threads=1)
    tiny = {"settings": {"tiny": TINY | {"runs": list(METHODS)}}}
    grid = read_grid(tiny if options.tiny else load_config(options.configfile)[0])
    costs.STORED = options.write or STORED
    bench = Bench(
        options.device,
        options.tiny,
        grid,
        time.monotonic(),
        60 * options.minutes,
        bool(options.write),
    )
    report_machine()
    print(f"measured on: {machine(options.device)}")
    for name, part in PARTS.items():
        print(f"\n{name}, after {bench.passed():.0f} s")
        if bench.passed() >= bench.limit:
            print("skipped: time is up")
            continue
        with failing(name):
            part(bench)
    print()
    bar(
        f"at most {options.minutes:g} minutes",
        f"{bench.passed() / 60:.1f}",
        bench.passed() <= bench.limit,
    )


if __name__ == "__main__":
    main()
