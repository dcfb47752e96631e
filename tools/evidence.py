"""Audit trained runs with the code of this checkout and add them to the tidy tables of reference/measured.

python tools/evidence.py RESULTS --configfile configs/evidence.yaml

RESULTS is a folder as the workflow makes it: checkpoints/, trajectories/, baselines/ and data/. Runs that are there
already are measured again; others of their setting stay.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pandas as pd

from fa_audit.audit.record import write_audit
from fa_audit.audit.run_audit import audit_files
from fa_audit.core.numerics import set_numerics
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.grid import Setting
from fa_audit.experiments.paths import TIDY, RunKey
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.tidy import KEY, read_audits, read_table, tidy_of, write_tables

MEASURED = Path("reference/measured")
RECORDED = ("cpu", "torch", "data_sha256", "checkpoint_sha256", "audit_sha256")


def audited(results: Path, setting: Setting, key: RunKey, output: Path) -> Path:
    """Audit one run against the baselines that are there; return the path of the JSON, which stays if it is newer."""
    checkpoint = results / "checkpoints" / f"{key}.safetensors"
    path = output / f"{key}.json"
    if path.exists() and path.stat().st_mtime > checkpoint.stat().st_mtime:
        return path
    set_numerics(threads=1)
    files = {
        role: results / "baselines" / f"{key._replace(run=run)}.json"
        for role, run in setting.baselines_of(key.run).items()
    }
    spec = setting.spec(key.run, key.seed)
    report, about = audit_files(
        checkpoint,
        results / "data" / f"{spec.dataset}.safetensors",
        sidecar=checkpoint.with_suffix(".json"),
        trajectory=results / "trajectories" / f"{key}.csv",
        baselines={role: file for role, file in files.items() if file.exists()},
        spec=spec,
        name=key.run,
    )
    write_audit(path, report, key._asdict(), about)
    return path


def add(setting: str, audits: list[Path], results: Path) -> None:
    """Write the tables of a setting: those of the audits, and of the runs that only the old tables have."""
    tidy = tidy_of(read_audits(audits), [results / "trajectories" / f"{RunKey.of(path)}.csv" for path in audits])
    tables = {}
    for name in TIDY:
        path, new = MEASURED / setting / f"{name}.csv", getattr(tidy, name)
        old = read_table(path) if path.exists() else new.head(0)
        fresh = pd.MultiIndex.from_frame(new[list(KEY)]).unique()
        kept = old[~pd.MultiIndex.from_frame(old[list(KEY)]).isin(fresh)] if len(old) else old
        parts = [part.astype(object) for part in (kept, new) if len(part)]  # else False beside nothing becomes 0.0
        joined = pd.concat(parts, ignore_index=True)
        order = [*KEY, *({"epoch", "layer"} & set(joined.columns))]
        joined = joined.sort_values(sorted(order, key=[*KEY, "epoch", "layer"].index), ignore_index=True)
        tables[path] = joined[[*new.columns, *joined.columns.difference(new.columns)]]
    work = tables[MEASURED / setting / "work.csv"]
    work[list(RECORDED)] = work.reindex(columns=RECORDED).fillna("not recorded")
    write_tables(tables)


def main() -> None:
    """Audit every run of the configuration that has been trained; write its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, metavar="RESULTS")
    parser.add_argument("--configfile", type=Path, default=Path("configs/evidence.yaml"), metavar="CONFIG")
    parser.add_argument("--audits", type=Path, default=Path("results/evidence"), metavar="DIR", help="where audits go")
    parser.add_argument("--jobs", type=int, default=1, help="audits at once; default %(default)s")
    options = parser.parse_args()
    config, line_of = load_config(options.configfile)
    with ProcessPoolExecutor(options.jobs) as pool:
        for name, setting in read_grid(config, where=line_of).settings.items():
            there = [key for key in setting.run_keys("runs") if _is_trained(options.results, key)]
            work = [pool.submit(partial(audited, options.results, setting, key, options.audits)) for key in there]
            if audits := [job.result() for job in work]:
                add(name, audits, options.results)
                print(f"{name}: {len(audits)} audits", flush=True)


def _is_trained(results: Path, key: RunKey) -> bool:
    """Return whether a run's training is done, and so are its baselines': the workflow audits it then."""
    return (results / "audits" / f"{key}.json").exists()


if __name__ == "__main__":
    main()
