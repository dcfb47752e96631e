"""Audit trained runs with the code of this checkout and add them to tidy tables.

python tools/evidence.py RESULTS --configfile configs/evidence.yaml
python tools/evidence.py RESULTS --configfile config.yaml --settings field_search field --tables
reference/field_cifar10

RESULTS is a folder as the workflow makes it: checkpoints/, trajectories/, baselines/ and data/.
Runs that are there already are measured again where a file is newer; others of their setting stay.
A run of a search (with `validation`) needs no baselines, and is taken once it is trained in every
setting of the search. What searches choose is written into the list `runs: &chosen` of the
configuration.

Beside the tables of a setting its audits are kept, in one archive: tar -xf
reference/measured/SETTING/audits.tar.xz
"""

from __future__ import annotations

import argparse
import io
import re
import tarfile
import textwrap
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pandas as pd
from tuned import choices, name_of

from fa_audit.audit.run_audit import audit_files
from fa_audit.core.files import write_bytes
from fa_audit.core.numerics import set_numerics
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.grid import Grid, Setting
from fa_audit.experiments.paths import TIDY, RunKey
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.tidy import KEY, read_audits, read_table, read_tidy, tidy_of, write_tables

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ("cpu", "torch", "data_sha256", "checkpoint_sha256", "audit_sha256")
CHOSEN = re.compile(r"(runs: &chosen\n\s*\[)[^]]*(\])")


def audited(results: Path, setting: Setting, key: RunKey, output: Path) -> Path:
    """Audit one run against the baselines that are there; return the path of the JSON, which stays
    if it is newer.
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


def add(folder: Path, audits: list[Path], results: Path) -> None:
    """Write the tables of a setting: those of the audits, and of the runs that only the old tables
    have.
    """
    tidy = tidy_of(
        read_audits(audits),
        [results / "trajectories" / f"{RunKey.of(path)}.csv" for path in audits],
    )
    tables = {}
    for name in TIDY:
        path, new = folder / f"{name}.csv", getattr(tidy, name)
        old = read_table(path) if path.exists() else new.head(0)
        fresh = pd.MultiIndex.from_frame(new[list(KEY)]).unique()
        kept = old[~pd.MultiIndex.from_frame(old[list(KEY)]).isin(fresh)] if len(old) else old
        parts = [
            part.astype(object) for part in (kept, new) if len(part)
        ]  # else False beside nothing becomes 0.0
        joined = pd.concat(parts, ignore_index=True)
        order = [*KEY, *({"epoch", "layer"} & set(joined.columns))]
        joined = joined.sort_values(
            sorted(order, key=[*KEY, "epoch", "layer"].index), ignore_index=True
        )
        tables[path] = joined[[*new.columns, *joined.columns.difference(new.columns)]]
    work = tables[folder / "work.csv"]
    work[list(RECORDED)] = work.reindex(columns=RECORDED).fillna("not recorded")
    write_tables(tables)


def pack(path: Path, audits: list[Path]) -> None:
    """Add audits to an archive, SETTING/RUN/seed*.json in it, in place of earlier ones of the same
    runs.

    The same audits give the same bytes.
    """
    files = {}
    if path.exists():
        with tarfile.open(path) as old:
            files = {
                member.name: old.extractfile(member).read() for member in old if member.isfile()
            }
    files |= {f"{RunKey.of(audit)}.json": audit.read_bytes() for audit in audits}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz", preset=9) as new:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    write_bytes(path, content.getvalue())


def chosen_runs(tables: Path, settings: Sequence[str]) -> list[str]:
    """Return what the searches among some settings chose, as names of runs."""
    rows = read_tidy([tables / setting / "runs.csv" for setting in settings])
    chosen = choices(rows.runs.assign(network=""))
    return sorted(map(name_of, chosen["run"], chosen["lr"], chosen["normalise"]))


def main() -> None:
    """Audit every run of the configuration that has been trained; write its tables, and what
    searches choose.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, metavar="RESULTS")
    parser.add_argument(
        "--configfile", type=Path, default=Path("configs/evidence.yaml"), metavar="CONFIG"
    )
    parser.add_argument(
        "--settings", nargs="*", metavar="SETTING", help="settings or blocks; default all"
    )
    parser.add_argument(
        "--tables",
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
        help="where audits go",
    )
    parser.add_argument("--jobs", type=int, default=1, help="audits at once; default %(default)s")
    options = parser.parse_args()
    grid = read(options.configfile)
    names = grid.named(options.settings) if options.settings else [*grid.settings]
    searches = [name for name in grid.settings if is_search(grid.settings[name])]
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in names:
            if name in searches:
                measure(pool, grid, name, options)
        grid = with_choices(
            grid,
            options,
            [name for name in searches if (options.tables / name / "runs.csv").exists()],
        )
        for name in names:
            if name not in searches:
                measure(pool, grid, name, options)


def with_choices(grid: Grid, options: argparse.Namespace, searches: Sequence[str]) -> Grid:
    """Write what the searches chose into the configuration, where it has a place for it, and read
    it again.
    """
    text = options.configfile.read_text(encoding="utf-8")
    if not searches or not CHOSEN.search(text):
        return grid
    runs = textwrap.fill(
        ", ".join(chosen_runs(options.tables, searches)), 110, subsequent_indent=7 * " "
    )
    options.configfile.write_text(CHOSEN.sub(rf"\g<1>{runs}\g<2>", text), encoding="utf-8")
    return read(options.configfile)


def read(configfile: Path) -> Grid:
    config, line_of = load_config(configfile)
    return read_grid(config, where=line_of)


def measure(pool: ProcessPoolExecutor, grid: Grid, name: str, options: argparse.Namespace) -> None:
    """Audit the runs of a setting that are there, and add them to its tables."""
    setting = grid.settings[name]
    block = (
        [other for other in grid.settings.values() if other.block == setting.block]
        if is_search(setting)
        else []
    )
    there = [
        key
        for key in setting.run_keys("runs")
        if all(
            (options.results / f"checkpoints/{key._replace(setting=each.name)}.json").exists()
            for each in block
        )
        and (
            block or (options.results / f"audits/{key}.json").exists()
        )  # audited: its baselines are done, too
    ]
    work = [
        pool.submit(partial(audited, options.results, setting, key, options.audits))
        for key in there
    ]
    if audits := [job.result() for job in work]:
        add(options.tables / name, audits, options.results)
        pack(options.tables / name / "audits.tar.xz", audits)
        print(f"{name}: {len(audits)} audits", flush=True)


def is_search(setting: Setting) -> bool:
    """Return whether a setting holds out samples to choose by."""
    return bool(setting.spec(setting.runs[0], setting.seeds[0]).validation)


if __name__ == "__main__":
    main()
