"""Audit trained runs with this checkout's code, and add the audits to a folder of measured runs.

python tools/evidence.py RESULTS --configfile configs/evidence.yaml
python tools/evidence.py RESULTS --configfile configs/board.yaml --settings field \\
    --into reference/field

RESULTS is a folder as the workflow makes it: checkpoints/, trajectories/, baselines/ and data/.
A run is audited again if its checkpoint or a baseline is newer than its audit; other measured runs
stay.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pandas as pd

from fa_audit.audit.run_audit import audit_files
from fa_audit.core.numerics import set_numerics
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.grid import Setting
from fa_audit.experiments.paths import EVIDENCE, RunKey
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.tidy import (
    KEY,
    key_of,
    read_audits,
    read_packed,
    read_table,
    trajectories_table,
    write_packed,
    write_tables,
)


def audited(results: Path, setting: Setting, key: RunKey, output: Path) -> Path:
    """Audit one run against the existing baselines; return the path of the JSON. A JSON that is
    newer than checkpoint and baselines is kept.
    """
    checkpoint = results / "checkpoints" / f"{key}.safetensors"
    roles = setting.baselines_of(key.run).items()
    files = {role: results / "baselines" / f"{key._replace(run=run)}.json" for role, run in roles}
    baselines = {role: file for role, file in files.items() if file.exists()}
    path = output / f"{key}.json"
    if path.exists() and path.stat().st_mtime > max(
        file.stat().st_mtime for file in (checkpoint, *baselines.values())
    ):
        return path
    set_numerics(threads=1)
    spec = setting.spec(key.run, key.seed)
    report, about = audit_files(
        checkpoint,
        results / "data" / f"{spec.dataset}.safetensors",
        sidecar=checkpoint.with_suffix(".json"),
        trajectory=results / "trajectories" / f"{key}.csv",
        baselines=baselines,
        spec=spec,
        name=key.run,
    )
    report.replace(**key._asdict(), **about).write(path)
    return path


def add(folder: Path, paths: list[Path], results: Path) -> None:
    """Add audits and trajectories to a setting's files; replace those of the same run and seed."""
    audits = read_audits(paths)
    files = [results / "trajectories" / f"{key_of(audit)}.csv" for audit in audits]
    history = trajectories_table(files, audits)
    fresh = set(map(key_of, audits))
    packed, followed = (folder / name for name in EVIDENCE)
    if packed.exists():
        audits += [audit for audit in read_packed(packed) if key_of(audit) not in fresh]
    if followed.exists():
        old = read_table(followed)
        is_fresh = pd.MultiIndex.from_frame(old[KEY]).isin(fresh)
        history = pd.concat([history, old[~is_fresh]], ignore_index=True)
    write_packed(packed, sorted(audits, key=key_of))
    write_tables({followed: history.sort_values([*KEY, "epoch", "layer"])})


def main() -> None:
    """Audit the configuration's finished runs, and add the audits to the folder ``--into``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, metavar="RESULTS")
    parser.add_argument(
        "--configfile", type=Path, default=Path("configs/evidence.yaml"), metavar="CONFIG"
    )
    parser.add_argument(
        "--settings",
        nargs="*",
        metavar="SETTING",
        help="settings, or entries with 'vary'; default all",
    )
    parser.add_argument(
        "--into",
        type=Path,
        default=Path("reference/measured"),
        metavar="DIR",
        help="default %(default)s",
    )
    parser.add_argument(
        "--audits",
        type=Path,
        default=Path("results/evidence"),
        metavar="DIR",
        help="folder for the new audits; default %(default)s",
    )
    parser.add_argument("--jobs", type=int, default=1, help="audits at once; default %(default)s")
    options = parser.parse_args()
    config, line_of = load_config(options.configfile)
    grid = read_grid(config, where=line_of)
    names = grid.named(options.settings) if options.settings else [*grid.settings]
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in names:
            measure(pool, grid.settings[name], options)


def measure(pool: ProcessPoolExecutor, setting: Setting, options: argparse.Namespace) -> None:
    """Audit the finished runs of a setting, and add the audits to its measured runs."""
    work = []
    for key in setting.run_keys("runs"):
        # The workflow makes an audit only after it has trained the run and its baselines.
        if (options.results / f"audits/{key}.json").exists():
            work.append(pool.submit(audited, options.results, setting, key, options.audits))
    if work:
        add(options.into / setting.name, [job.result() for job in work], options.results)
        print(f"{setting.name}: {len(work)} audits", flush=True)


if __name__ == "__main__":
    main()
