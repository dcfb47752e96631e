"""Compare the throughput of the engine with that of a textbook training loop. Asserts nothing.

Both compute the same updates on the same machine in the same run; the script checks that first. The
textbook loop uses a DataLoader with two workers and torchvision's transforms, one backward pass and
one AdamW per part of the network that has a loss of its own, and all cores. The engine is
`fa_audit.training.loop.train` with one thread per run.

    python benchmarks/throughput.py [--quick] [--samples N] [--repeats N]

The pixels are random: nothing is downloaded, and the throughput does not depend on the images.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from torchvision import transforms

from fa_audit.core.numerics import set_numerics
from fa_audit.core.randomness import generator
from fa_audit.data.dataset import Dataset, pad, training_batches
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.learner import Learner, build, learn
from fa_audit.training.loop import train

METHODS = ("bp", "fa", "dfa")
BARS = {"dfa": 5.0, "bp": 4.5}  # engine over textbook
STEP_BAR, STEPS_TIMED = 1.4, 300  # a step over its bare matrix products
BATCH, STEPS_COMPARED = 128, 3
FULL_SIZE, MEMORY_BAR = 50_000, 1.5e9
RESMLP = (("depth", 4), ("residual", True), ("terminal_norm", True), ("width", 256))
Optimisers = list[torch.optim.Optimizer]


def random_images(train_size: int, test_size: int = BATCH) -> Dataset:
    """Make a data set shaped like CIFAR-10."""
    randomness = torch.Generator().manual_seed(0)

    def draw(high: int, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randint(high, shape, generator=randomness, dtype=dtype)

    return Dataset(
        name="random",
        train_images=draw(256, train_size, 3, 32, 32, dtype=torch.uint8),
        train_labels=draw(10, train_size, dtype=torch.int64),
        test_images=draw(256, test_size, 3, 32, 32, dtype=torch.uint8),
        test_labels=draw(10, test_size, dtype=torch.int64),
        classes=10,
        scale=255,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        padding=4,
        flip=True,
    )


def spec_of(method: str, epochs: int = 1) -> RunSpec:
    """Return the specification of the paper's network and budget."""
    return RunSpec(
        dataset="random",
        architecture="resmlp",
        architecture_options=RESMLP,
        method=method,
        epochs=epochs,
        batch_size=BATCH,
    )


# --- The textbook's loop. It shares the network's modules and initial values with the engine, and
# nothing else. ---


class Images(torch.utils.data.Dataset):
    """Return one transformed PIL image at a time, as torchvision's data sets do."""

    def __init__(self, dataset: Dataset, transform: Callable[[Image.Image], Tensor]) -> None:
        self.images = dataset.train_images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels = dataset.train_labels.tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def textbook_loader(dataset: Dataset, order: list[int] | None = None) -> DataLoader:
    """Return a loader that shuffles and augments; given an `order` of indices, it does neither."""
    augment = (
        [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
        if order is None
        else []
    )
    normalise = [transforms.ToTensor(), transforms.Normalize(dataset.mean, dataset.std)]
    images = Images(dataset, transforms.Compose([*augment, *normalise]))
    return DataLoader(images, BATCH, shuffle=order is None, sampler=order, num_workers=2)


def textbook_epoch(learner: Learner, loader: DataLoader) -> float:
    """Train for one epoch and return its seconds."""
    step = end_to_end_step if learner.spec.method == "bp" else local_step
    network = learner.network
    # BP has one loss and one optimiser; local methods have one for embedding and head, and one per
    # block.
    parts = (
        [[network]]
        if step is end_to_end_step
        else [[network.embed, network.head], *([b] for b in network.blocks)]
    )
    optimisers = [
        torch.optim.AdamW(p for module in part for p in module.parameters()) for part in parts
    ]
    network.train()
    start = time.perf_counter()
    for x, labels in loader:
        step(learner, x, labels, optimisers)
    return time.perf_counter() - start


def end_to_end_step(learner: Learner, x: Tensor, labels: Tensor, optimisers: Optimisers) -> None:
    """Take one step of end-to-end backpropagation."""
    minimise(F.cross_entropy(learner.network(x), labels), optimisers[0])


def local_step(learner: Learner, x: Tensor, labels: Tensor, optimisers: Optimisers) -> None:
    """Take one step of block-local losses: detach every block's input, then minimise one loss per
    part.
    """
    network = learner.network
    h0 = network.embed(x)
    h, residuals = h0.detach(), []
    for block in network.blocks:
        residuals.append(block(h))
        h = h + residuals[-1].detach()
    top = h.requires_grad_()
    logits = network.head(top)
    loss = F.cross_entropy(logits, labels)
    credits = {"fa": fa_credits, "dfa": dfa_credits}[learner.spec.method]
    embedding, *blocks = credits(learner.state, logits, labels, loss, top)
    minimise(loss + local_loss(h0, embedding), optimisers[0])
    for residual, credit, optimiser in zip(residuals, blocks, optimisers[1:], strict=True):
        minimise(local_loss(residual, credit), optimiser)


def dfa_credits(
    feedback: nn.Module, logits: Tensor, labels: Tensor, loss: Tensor, top: Tensor
) -> list[Tensor]:
    """Project the output error by each block's feedback matrix, ``(B, d)``; the embedding uses the
    first block's.
    """
    error = logits.detach().softmax(dim=1) - F.one_hot(labels, logits.shape[1])
    blocks = [error @ matrix.T for matrix in feedback.buffers()]
    return [blocks[0], *blocks]


def fa_credits(
    feedback: nn.Module, logits: Tensor, labels: Tensor, loss: Tensor, top: Tensor
) -> list[Tensor]:
    """Propagate the exact gradient at h_L down, ``(B, d)``, one feedback matrix per block; the
    embedding first.
    """
    credits = list(torch.autograd.grad(loss, top, retain_graph=True))
    for matrix in reversed(list(feedback.buffers())):
        credits.append(credits[-1] @ matrix)
    return credits[::-1]


def local_loss(output: Tensor, credit: Tensor) -> Tensor:
    """Return ``mean_B <output, r(credit)>``."""
    rms = credit.square().mean(dim=1, keepdim=True).sqrt()
    return (output * credit / (rms + 1e-6)).sum(dim=1).mean()


def minimise(loss: Tensor, optimiser: torch.optim.Optimizer) -> None:
    """Run one backward pass and one optimiser step."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


# --- What is measured. ---


@contextlib.contextmanager
def engine_numerics(engine_threads: int = 1) -> Iterator[None]:
    """Apply the library's settings; restore torch's defaults afterwards for the textbook side."""
    threads, precision = torch.get_num_threads(), torch.backends.fp32_precision
    set_numerics(engine_threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
        torch.backends.fp32_precision = precision


def engine_speed(method: str, dataset: Dataset) -> float:
    """Return the engine's samples per second over one epoch, its evaluation at the end included."""
    with engine_numerics():
        return len(dataset.train_labels) / train(spec_of(method), dataset).seconds


def textbook_speed(method: str, dataset: Dataset) -> float:
    """Return the textbook loop's samples per second over one epoch."""
    learner = build(spec_of(method), dataset.image_shape, dataset.classes)
    return len(dataset.train_labels) / textbook_epoch(learner, textbook_loader(dataset))


def differences(method: str) -> tuple[float, float]:
    """Measure how far the textbook, and the engine with two threads, are from the engine after the
    same few batches.

    The second number is the yardstick: two threads add the same numbers in another order, and
    AdamW's first steps divide each gradient by itself, which magnifies rounding.
    """
    dataset = replace(random_images(STEPS_COMPARED * BATCH), padding=0, flip=False)
    spec = spec_of(method)
    initial, textbook = (build(spec, dataset.image_shape, dataset.classes) for _ in range(2))
    order = torch.randperm(
        len(dataset.train_labels), generator=generator(spec.seed, "epoch", 0)
    ).tolist()
    textbook_epoch(textbook, textbook_loader(dataset, order))
    with engine_numerics():
        engine = train(spec, dataset).learner
    with engine_numerics(2):
        two_threads = train(spec, dataset).learner
    return distance(engine, textbook, initial), distance(engine, two_threads, initial)


def distance(one: Learner, other: Learner, initial: Learner) -> float:
    """Return the largest ``||difference|| / ||movement since the start||`` of any parameter."""
    triples = zip(*(learner.network.parameters() for learner in (one, other, initial)))
    return max(((a - b).norm() / (b - start).norm()).item() for a, b, start in triples)


def worker(task: Callable[..., Any], results: Any, *arguments: Any) -> None:
    """Run one task in a process of its own."""
    results.put(task(*arguments))


def in_processes(count: int, task: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run a task in `count` concurrent processes; return the result of each."""
    context = multiprocessing.get_context("spawn")
    results, barrier = context.SimpleQueue(), context.Barrier(count)
    processes = [
        context.Process(target=worker, args=(task, results, barrier, *arguments))
        for _ in range(count)
    ]
    for process in processes:
        process.start()
    returned = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return returned


def timed_training(barrier: Any, method: str, threads: int, samples: int) -> tuple[float, float]:
    """Return when an epoch started and ended; all processes start it together, warmed up."""
    set_numerics(threads)
    dataset = random_images(samples)
    train(spec_of(method), random_images(10 * BATCH))
    barrier.wait()
    start = time.time()
    train(spec_of(method), dataset)
    return start, time.time()


def aggregate_speed(method: str, processes: int, threads: int, samples: int) -> float:
    """Return the samples per second of `processes` concurrent trainings, from the first start to
    the last end.
    """
    starts, ends = zip(*in_processes(processes, timed_training, method, threads, samples))
    return processes * samples / (max(ends) - min(starts))


class Products(TorchDispatchMode):
    """Keep the matrix products of the code inside, with their operands."""

    KINDS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if function in self.KINDS:
            self.calls.append((function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))

    @torch.no_grad()
    def repeat(self) -> None:
        """Compute the products again, and nothing else."""
        for function, args, kwargs in self.calls:
            function(*args, **kwargs)


def steps_of(spec: RunSpec, data: Dataset) -> Iterator[Learner]:
    """Train without end, in the phase in which a run spends most of its time; yield the learner
    after every step.
    """
    learner = build(spec, data.image_shape, data.classes).to(data.train_images.device)
    optimiser, padded = learner.optimiser(), pad(data.train_images, data.padding)
    noise = generator(spec.seed, "noise", device=padded.device)
    learner.train_mode()
    learner.method.begin_epoch(learner.state, 0.5)
    while True:
        for x, labels in training_batches(
            data, padded, spec.batch_size, generator(spec.seed, "order")
        ):
            optimiser.zero_grad()
            learn(learner, x, labels, noise)
            optimiser.step()
            yield learner


def step_seconds(method: str, dataset: Dataset) -> tuple[float, float]:
    """Return the median CPU times of a training step, its batch included, and of its matrix
    products, in turn.
    """
    steps = steps_of(spec_of(method), dataset)
    next(steps)
    with Products() as products:
        next(steps)
    both = [
        (cpu_seconds(lambda: next(steps)), cpu_seconds(products.repeat)) for _ in range(STEPS_TIMED)
    ]
    return tuple(statistics.median(side) for side in zip(*both))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def peak_memory(barrier: Any) -> int | None:
    """Return the peak resident bytes of a process that trains one epoch on data of CIFAR-10's size;
    Linux only.
    """
    set_numerics(1)
    train(spec_of("dfa"), random_images(FULL_SIZE, 10_000))
    # Not ru_maxrss: a child inherits its parent's.
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), None)


# --- What is printed. ---


def interleaved(repeats: int, *measurements: Callable[[], float]) -> list[list[float]]:
    """Repeat the measurements in turn, so that other load on the machine affects all of them alike."""
    rounds = [[measure() for measure in measurements] for _ in range(repeats)]
    return [list(values) for values in zip(*rounds)]


def spread(values: list[float]) -> str:
    """Format the median and the range."""
    return f"{statistics.median(values):8,.0f} ({min(values):,.0f}-{max(values):,.0f})"


def bar(name: str, found: str, met: bool) -> None:
    """Print whether a target was reached."""
    print(f"bar {name}: {found} {'met' if met else 'missed'}", flush=True)


def report_machine() -> None:
    """Print what the numbers depend on."""
    load = os.getloadavg()[0]
    print(
        f"machine: {os.cpu_count()} cores, {platform.machine()}, {platform.system()}, load average {load:.2f}"
    )
    if load > 0.5:  # the textbook's threads outnumber the cores and suffer most
        print(
            "warning: other programs are running, so no ratio below is worth quoting; repeat on an idle machine"
        )
    print(f"python {platform.python_version()}, torch {torch.__version__}")
    print(f"threads: textbook {torch.get_num_threads()} and 2 loader workers, engine 1 per run")


def report_arithmetic() -> None:
    """Print how much the two sides differ in what they compute."""
    print(
        f"\nafter {STEPS_COMPARED} steps without augmentation, largest relative difference in a parameter's movement"
    )
    for method in METHODS:
        textbook, yardstick = differences(method)
        print(
            f"{method:4} engine and textbook {textbook:.1e}  engine with 1 and 2 threads {yardstick:.1e}",
            flush=True,
        )


def report_speed(samples: int, repeats: int) -> None:
    """Compare engine and textbook loop for every method: one run on one core, and all cores at
    work.

    The textbook's loop occupies every core with its threads and workers. The engine fills a machine
    with one-thread runs side by side, one per core, which is how the workflow starts them.
    """
    dataset, warm_up, cores = random_images(samples), random_images(10 * BATCH), os.cpu_count() or 1
    print(f"\nsamples/s, {samples:,} images: median (range) of {repeats} epochs each, in turn")
    ratios = {}
    for method in METHODS:
        textbook_speed(method, warm_up), engine_speed(method, warm_up)
        sides = (
            lambda m=method: textbook_speed(m, dataset),
            lambda m=method: engine_speed(m, dataset),
            lambda m=method: aggregate_speed(m, cores, 1, samples),
        )
        textbook, alone, together = interleaved(repeats, *sides)
        single, ratios[method] = (
            statistics.median(side) / statistics.median(textbook) for side in (alone, together)
        )
        print(f"{method:4} textbook, all cores          {spread(textbook)}")
        print(f"     engine, one run on one core   {spread(alone)}  ratio {single:.1f}")
        print(
            f"     engine, a run on each core    {spread(together)}  ratio {ratios[method]:.1f}",
            flush=True,
        )
    for method, least in BARS.items():
        bar(
            f"{method.upper()} >= {least:g}x, whole machine",
            f"{ratios[method]:.1f}x",
            ratios[method] >= least,
        )


def report_side_by_side(samples: int, repeats: int) -> None:
    """Compare runs of one thread each side by side with runs of all threads one after another."""
    sides = [
        lambda: aggregate_speed("dfa", 2, 1, samples),
        lambda: aggregate_speed("dfa", 1, 2, samples),
    ]
    two, one = interleaved(repeats, *sides)
    print("\nDFA, samples/s of everything together")
    print(f"two processes, one thread each {spread(two)}")
    print(f"one process, two threads       {spread(one)}")
    print(f"ratio {statistics.median(two) / statistics.median(one):.2f}", flush=True)


def report_step() -> None:
    """Compare a step of one run with its matrix products alone."""
    print("\na training step, its batch included, and its bare matrix products")
    dataset = random_images(100 * BATCH)
    with engine_numerics():
        for method in BARS:
            step, products = step_seconds(method, dataset)
            ratio = step / products
            print(f"{method:4} {1e3 * step:.2f} ms and {1e3 * products:.2f} ms")
            bar(
                f"{method.upper()} step <= {STEP_BAR}x its products",
                f"{ratio:.2f}x",
                ratio <= STEP_BAR,
            )


def report_memory() -> None:
    """Print the peak memory of a full-size run."""
    (peak,) = in_processes(1, peak_memory)
    print(
        f"\npeak resident memory of one DFA epoch on {FULL_SIZE:,} images, in a process of its own"
    )
    if peak is None:
        print("not measured: needs Linux")
    else:
        bar(f"memory < {MEMORY_BAR / 1e9:g} GB", f"{peak / 1e9:.2f} GB", peak < MEMORY_BAR)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--samples", type=int, default=FULL_SIZE, help="training images per epoch (default 50000)"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="epochs measured per side (default 5)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="10000 images and 3 repeats: a minute, rougher numbers"
    )
    options = parser.parse_args()
    samples, repeats = (10_000, 3) if options.quick else (options.samples, options.repeats)
    report_machine()
    report_arithmetic()
    report_speed(samples, repeats)
    report_step()
    report_side_by_side(samples, repeats)
    report_memory()


if __name__ == "__main__":
    main()
