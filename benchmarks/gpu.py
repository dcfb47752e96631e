"""Train the paper's network in 1, 4, 8, 12 and 16 processes on one GPU; print the samples per second
and whether all end with exactly the same network.

    python benchmarks/gpu.py                    # with MPS if it runs (docs/cluster.md)
    python benchmarks/gpu.py --runs 1 2 --device cpu

Nobody else may use the GPU meanwhile. Pixels are random: nothing is downloaded.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from costs import SIZES, noise

from fa_audit.core.numerics import set_numerics
from fa_audit.data.data_file import checksum
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.checkpoint import learner_tensors
from fa_audit.training.loop import train

NETWORK = (("depth", 4), ("width", 256))
barrier: Any = None  # set in every process, so that all start to train together


def share(common: Any) -> None:
    """Set up a process of the pool: the barrier that all share, and one thread."""
    global barrier
    barrier = common
    set_numerics(threads=1)


def timed(spec: RunSpec, samples: int, device: str) -> tuple[float, float, str]:
    """Train; return the times of start and end, and a SHA-256 of everything that was learned."""
    shape, classes, *_ = SIZES["cifar10"]
    data = noise(shape, classes, samples, 1000)
    train(replace(spec, epochs=1), noise(shape, classes, 256, 128), device=device)  # to warm up
    barrier.wait(300)
    start = time.time()
    learner = train(spec, data, device=device).learner
    end = time.time()
    digest = hashlib.sha256()
    for _, tensor in sorted(learner_tensors(learner).items()):
        digest.update(checksum(tensor.detach().cpu()).encode())
    return start, end, digest.hexdigest()


def side_by_side(count: int, spec: RunSpec, samples: int, device: str) -> tuple[float, set[str]]:
    """Run `count` trainings at once; return their total samples per second, and their digests."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, share, (context.Barrier(count),)) as pool:
        futures = [pool.submit(timed, spec, samples, device) for _ in range(count)]
        starts, ends, digests = zip(*(future.result() for future in futures))
    return count * spec.epochs * samples / (max(ends) - min(starts)), set(digests)


def main() -> None:
    """For each number in ``--runs``, time that many trainings at once and print a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 4, 8, 12, 16])
    parser.add_argument("--method", default="dfa")
    parser.add_argument("--samples", type=int, default=50_000)
    options = parser.parse_args()
    spec = RunSpec(
        dataset="random",
        architecture="resmlp",
        architecture_options=NETWORK,
        method=options.method,
        epochs=3,
    )
    every = set()
    for count in options.runs:
        speed, digests = side_by_side(count, spec, options.samples, options.device)
        every |= digests
        same = "the same bits" if len(every) == 1 else "OTHER BITS"
        print(f"{count:>3} runs: {speed:>12,.0f} samples/s, {same}", flush=True)


if __name__ == "__main__":
    main()
