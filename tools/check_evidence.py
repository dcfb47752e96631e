"""Train the cheapest published runs again, on the real data, and compare them with reference/measured.

python tools/check_evidence.py [--data DIR] [--jobs N]

Where processor and torch are those of the measured run its checkpoint must have the same SHA-256. Elsewhere rounding
differs and training amplifies it: every number must then lie within what the seeds of the measured run scatter.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from methods_table import ROOT
from scipy import stats

from fa_audit.audit.run_audit import audit
from fa_audit.core.errors import AuditError
from fa_audit.core.files import sha256_of
from fa_audit.core.numerics import set_numerics
from fa_audit.core.provenance import cpu_model
from fa_audit.data.cifar import cifar10
from fa_audit.data.dataset import load_dataset, save_dataset
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.published import FILE, read_published
from fa_audit.experiments.spec import RunSpec
from fa_audit.results.our_runs import OurRuns
from fa_audit.results.scorecard import Scorecard, counted, read_results, scorecard
from fa_audit.results.tidy import KEY, runs_table
from fa_audit.training.checkpoint import save_checkpoint
from fa_audit.training.loop import train

MEASURED = ROOT / "reference/measured"
# About 300 epochs of backpropagation's price, 25 minutes of one core: early epochs, controls, penalties.
SETTINGS = ("untrained", "early_snapshots_clipped", "no_residual_3_epochs_clipped", "random_targets_3_epochs_clipped")
MORE = {"penalty_sweep": ("bp+penalty1e-2", "dfa+penalty1e-2", "dfa+penalty1e-4", "state_bridge+penalty1e-2")}
SEED = 42  # of the dear ones
LEAST = 1e-3  # of a number: what is smaller than the scatter of any


def chosen(keys: list[RunKey]) -> list[RunKey]:
    """Return the runs to train again: of the cheap settings all that published numbers are of."""
    cheap = (key for key in keys if key.setting in SETTINGS)
    dear = (key for key in keys if key.run in MORE.get(key.setting, ()) and key.seed == SEED)
    return [*cheap, *dear]


def trained_again(spec: dict[str, Any], row: dict[str, Any], data: Path) -> tuple[str, dict[str, Any]]:
    """Train and audit one run; return its checkpoint's SHA-256 and its row of the runs table."""
    set_numerics(threads=1)
    dataset, baselines = load_dataset(data), {"own": row["own_frozen_acc"], "bp": row["bp_frozen_acc"]}
    run = train(RunSpec.from_dict(spec), dataset)
    own = None if pd.isna(baselines["own"]) else ("frozen", baselines["own"])
    bp = None if pd.isna(baselines["bp"]) else baselines["bp"]
    report = audit(run.learner, dataset, run.accuracy, own_frozen=own, bp_frozen_acc=bp, trajectory=run.history)
    about = {name: row[name] for name in KEY} | {"spec": spec, "stopped_after": run.stopped_after, "digest": ""}
    known = {role: {"accuracy": value} for role, value in baselines.items() if not pd.isna(value)}
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(run.learner, path := Path(folder) / "checkpoint.safetensors")
        digest = sha256_of(path)
    audited = json.loads(json.dumps(report.to_dict())) | about | {"baseline_runs": known}
    return digest, runs_table([audited]).iloc[0].to_dict()


def covered(card: Scorecard, rows: pd.DataFrame, keys: set[RunKey]) -> int:
    """Return how many numbers that count and were run are compared with some of the runs."""
    counts = 0
    for index in counted(rows).query("verdict != 'not run'").index:
        entry = card.published.entries[index]
        found = [card.ours.seeds(spec, entry.setting) for spec in card.specs(entry).values()]
        counts += all(any(key in keys for seed, key in seeds.items() if seed in entry.seeds) for seeds in found)
    return counts


def outside(found: dict[str, Any], seeds: pd.DataFrame, usual: pd.Series) -> Iterator[str]:
    """Yield the numbers that differ from the measured ones by more than seeds scatter.

    Args:
        seeds: the measured rows of all seeds of the run; the first is of the same seed.
        usual: the relative scatter of every column over the runs that have three seeds.
    """
    for name in usual.index:
        ours, theirs = float(found[name] or "nan"), float(seeds.iloc[0][name])
        if pd.isna(ours) or pd.isna(theirs):
            continue
        own = seeds[name].astype(float)
        scatter = own.std() if len(own) > 2 else usual[name] * abs(theirs)
        t = stats.t.ppf(0.975, max(2, len(own) - 1))
        if abs(ours - theirs) > max(t * scatter * 2**0.5, LEAST * abs(theirs)):
            yield f"{name}: {ours:.4g}, measured {theirs:.4g}, scatter {scatter:.2g}"


def usual_scatter(runs: pd.DataFrame) -> pd.Series:
    """Return the median relative deviation over seeds of every column of numbers."""
    numbers = runs.select_dtypes("number").columns.difference([*KEY, "width", "depth", "epochs", "lr", "penalty"])
    groups = runs.groupby(["setting", "run"]).filter(lambda group: len(group) > 2).groupby(["setting", "run"])[numbers]
    return (groups.std() / groups.mean().abs()).median().dropna()


def main() -> None:
    """Train, compare, and end with 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="DIR", help="with cifar-10-batches-py")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once; default %(default)s")
    options = parser.parse_args()
    if not (options.data / "cifar-10-batches-py").is_dir():
        raise SystemExit(
            f"check-evidence: no cifar-10-batches-py in '{options.data}': nothing was compared. Put the published files"
            " there, or name their folder: make check-evidence DATA=DIR (`fa-audit data cifar10` downloads them)."
        )
    published, tidy = read_published(load_config(ROOT / FILE)[0]), read_results(MEASURED)
    card = Scorecard(published, OurRuns(tidy))
    keys = chosen(sorted(card.used()))
    entries = covered(card, scorecard(published, tidy), set(keys))
    runs, work = (table.set_index(list(KEY), drop=False) for table in (tidy.runs, tidy.work))
    usual, wrong = usual_scatter(tidy.runs), 0
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(options.jobs) as pool:
        save_dataset(cifar10(options.data), data := Path(folder) / "cifar10.safetensors")
        rows = {key: runs.loc[key].to_dict() for key in keys}
        jobs = [pool.submit(trained_again, json.loads(row["spec"]), row, data) for row in rows.values()]
        for key, job in zip(keys, jobs, strict=True):
            digest, found = job.result()
            place = work.loc[key]
            alike = (place["cpu"], place["torch"]) == (cpu_model(), torch.__version__.partition("+")[0])
            same = tidy.runs[(tidy.runs["setting"] == key.setting) & (tidy.runs["run"] == key.run)]
            ordered = pd.concat([same[same["seed"] == key.seed], same[same["seed"] != key.seed]])
            differing = list(outside(found, ordered, usual))
            if alike:
                verdict = "same bits" if digest == place["checkpoint_sha256"] else f"other bits: {digest[:12]}"
                wrong += digest != place["checkpoint_sha256"]
            else:
                verdict = "within the scatter of seeds" if not differing else "; ".join(differing)
                wrong += bool(differing)
            print(f"{key}: {verdict}", flush=True)
    print(f"check-evidence: {len(keys)} runs trained again, {wrong} differ; they carry {entries} numbers that count")
    raise SystemExit(min(1, wrong))


if __name__ == "__main__":
    try:
        main()
    except AuditError as error:
        raise SystemExit(f"check-evidence: {error}") from error
