"""Train the cheapest published runs again, on the real data, and compare them with
reference/measured.

python tools/check_evidence.py [--data DIR] [--jobs N]

On the same processor and torch, a checkpoint has the SHA-256 of the measured one. Elsewhere
rounding differs, and training amplifies the difference. In that case the run's numbers must lie
within the scatter of the measured seeds, if the scorecard's headline counts them.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from methods_table import ROOT
from scipy import stats

from fa_audit.audit.run_audit import audit
from fa_audit.core.errors import AuditError
from fa_audit.core.files import sha256_of
from fa_audit.core.numerics import set_numerics
from fa_audit.data.cifar import cifar10
from fa_audit.data.dataset import Dataset, load_dataset, save_dataset
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.published import FILE, Entry, Published, read_published_file
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import RunSpec
from fa_audit.protocol.audit import Audit
from fa_audit.results.judging import NOT_RUN, combined
from fa_audit.results.measured import read_measured
from fa_audit.results.our_runs import OurRuns
from fa_audit.results.scorecard import scorecard
from fa_audit.results.tidy import KEY, Tidy, key_of, tidy_of
from fa_audit.training.checkpoint import save_checkpoint
from fa_audit.training.loop import train

MEASURED = ROOT / "reference/measured"
# The runs to train again: early epochs, controls and penalties. Together they take as long as
# 300 epochs of backpropagation, about 25 minutes on one core.
SETTINGS = (
    "untrained",
    "early_snapshots_clipped",
    "no_residual_3_epochs_clipped",
    "random_targets_3_epochs_clipped",
)
MORE = {
    "penalty_sweep": (
        "bp+penalty1e-2",
        "dfa+penalty1e-2",
        "dfa+penalty1e-4",
        "state_bridge+penalty1e-2",
    )
}
SEED = 42  # of the costly runs in MORE
# Fractions of the measured number: differences up to LEAST are ignored; USUAL is the scatter
# assumed if fewer than three seeds were measured.
LEAST, USUAL = 1e-3, 0.05


def chosen(keys: list[RunKey]) -> list[RunKey]:
    """Return the runs to train again: all of `SETTINGS`, and one seed of those in `MORE`."""
    cheap = (key for key in keys if key.setting in SETTINGS)
    dear = (key for key in keys if key.run in MORE.get(key.setting, ()) and key.seed == SEED)
    return [*cheap, *dear]


def trained_again(measured: Audit, data: Path) -> tuple[str, Audit, list[dict[str, Any]]]:
    """Train and audit one run; return its checkpoint's SHA-256, its audit and its history.

    Baselines are not trained again: their accuracies are those in `measured`.
    """
    set_numerics(threads=1)
    dataset = load_dataset(data)
    run = train(RunSpec.from_dict(measured.spec), dataset)
    known = measured.baselines
    own = None if known.own is None else ("frozen", known.own)
    report = audit(run.learner, dataset, run.accuracy, own_frozen=own, bp_frozen_acc=known.bp,
                   trajectory=run.history)  # fmt: skip
    key = key_of(measured)._asdict()
    about = {"spec": measured.spec, "baseline_runs": measured.baseline_runs}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.safetensors"
        save_checkpoint(run.learner, path)
        digest = sha256_of(path)
    again = report.replace(**key, **about, stopped_after=run.stopped_after)
    return digest, again, [key | state for state in run.history]


def differences(entry: Entry, ours: dict[int, Any], measured: dict[int, Any]) -> Iterator[str]:
    """Yield a line for every seed whose verdict differs from the measured one, or whose value
    differs by more than the scatter of the measured seeds explains.

    The limit is the 95 % t-limit of a difference of two seeds, or the fraction `LEAST` of the
    measured value if that is larger. With fewer than three measured seeds, the fraction `USUAL` of
    the value stands for their scatter. If the measured value is NaN, there is no line.

    Args:
        ours: values of the runs that were trained again, by seed.
        measured: values of all measured seeds, by seed.
    """
    for seed, found in ours.items():
        there = measured[seed]
        if entry.kind == "verdict":
            if found != there:
                yield f"{entry.key} seed {seed}: now {found}, measured {there}"
            continue
        if math.isnan(there):
            continue
        values = [value for value in measured.values() if math.isfinite(value)]
        scatter = float(np.std(values, ddof=1)) if len(values) > 2 else USUAL * abs(there)
        t = stats.t.ppf(0.975, max(2, len(values) - 1))
        if not abs(found - there) <= max(t * scatter * math.sqrt(2), LEAST * abs(there)):
            yield (
                f"{entry.key} seed {seed}: now {found:.4g}, measured {there:.4g},"
                f" scatter of seeds {scatter:.2g}"
            )


def train_all(keys: list[RunKey], tidy: Tidy, dataset: Dataset, jobs: int) -> OurRuns:
    """Train and audit runs again, the longest first; print whether each has the same bits
    as the measured run.
    """
    audits = {key_of(audit): audit for audit in tidy.runs["audit"]}
    keys = sorted(keys, key=lambda key: -audits[key].seconds)
    found, states = [], []
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(jobs) as pool:
        data = Path(folder) / "cifar10.safetensors"
        save_dataset(dataset, data)
        started = [pool.submit(trained_again, audits[key], data) for key in keys]
        for key, job in zip(keys, started, strict=True):
            digest, audited, history = job.result()
            found.append(audited)
            states += history
            before = audits[key]
            same = "bits not recorded"
            if before.checkpoint_sha256:
                same = "same bits" if before.checkpoint_sha256 == digest else "different bits"
            print(f"{key}: {same} (measured on {before.cpu}, torch {before.torch})", flush=True)
    return OurRuns(replace(tidy_of(found), trajectories=pd.DataFrame(states)))


def compare(
    published: Published, rows: pd.DataFrame, again: OurRuns, before: OurRuns
) -> tuple[int, list[str]]:
    """Return the count of published numbers that were compared, and a line for each difference."""
    compared, wrong = 0, []
    shown = rows["counted"] & (rows["verdict"] != NOT_RUN) & (rows["kind"] != "order")
    for index in rows.index[shown]:
        entry = published.entries[index]
        specs = published.specs(entry, rows["judged_script"][index])
        ours, theirs = (combined(entry, own.measured(entry, specs)) for own in (again, before))
        numbers = ours[entry.runs[0]]
        compared += bool(numbers)
        wrong += differences(entry, numbers, theirs[entry.runs[0]])
    return compared, wrong


def main() -> None:
    """Train, compare, and exit with status 1 if a number differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path("data"), metavar="DIR", help="with cifar-10-batches-py"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="trainings at once; default %(default)s"
    )
    options = parser.parse_args()
    if not (options.data / "cifar-10-batches-py").is_dir():
        raise SystemExit(
            f"check-evidence: no cifar-10-batches-py in '{options.data}': nothing was compared."
            " Put the published files there, or name their folder: make check-evidence DATA=DIR"
            " (`snakemake results/data/cifar10.safetensors` downloads them)."
        )
    published, tidy = read_published_file(ROOT / FILE), read_measured(MEASURED)
    dataset = cifar10(options.data)
    grid = read_grid(load_config(ROOT / "configs/measured.yaml")[0])
    keys = chosen(published.run_keys_in(grid))
    recorded = tidy.work.set_index(KEY).loc[keys]["data_sha256"].dropna()
    if set(recorded) - {dataset.sha256}:
        raise AuditError(
            f"'{options.data}': not the data of the measured runs; expected the published CIFAR-10."
        )
    again = train_all(keys, tidy, dataset, options.jobs)
    compared, wrong = compare(published, scorecard(published, tidy), again, OurRuns(tidy))
    print(*wrong, sep="\n", end="\n" * bool(wrong))
    told = f"{compared} published numbers, {len(wrong)} differences beyond the scatter of seeds"
    print(f"check-evidence: {len(keys)} runs trained again; {told}")
    raise SystemExit(min(1, len(wrong)))


if __name__ == "__main__":
    try:
        main()
    except AuditError as error:
        raise SystemExit(f"check-evidence: {error}") from error
