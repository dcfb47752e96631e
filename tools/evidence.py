"""Audit trained runs with the code of this checkout and add them to measured ones.

python tools/evidence.py RESULTS --configfile configs/evidence.yaml
python tools/evidence.py RESULTS --configfile config.yaml --settings field_search field --into
reference/field_cifar10

RESULTS is a folder as the workflow makes it: checkpoints/, trajectories/, baselines/ and data/.
Runs that are there already are measured again where a file is newer; others of their setting stay.
A run of a search (with `validation`) needs no baselines, and is taken once it is trained in every
setting of the search. What searches choose is written into the list `runs: &chosen` of the
configuration.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pandas as pd
from tuned import choices, name_of

from fa_audit.audit.run_audit import audit_files
from fa_audit.core.numerics import set_numerics
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.grid import Grid, Setting
from fa_audit.experiments.paths import EVIDENCE, RunKey
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.tidy import (
    KEY,
    key_of,
    read_audits,
    read_packed,
    read_table,
    read_tidy,
    trajectories_table,
    write_packed,
    write_tables,
)

ROOT = Path(__file__).resolve().parents[1]
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


def add(folder: Path, paths: list[Path], results: Path) -> None:
    """Write the audits and trajectories of a setting: new ones, and old ones of other runs."""
    audits = read_audits(paths)
    files = [results / "trajectories" / f"{key_of(audit)}.csv" for audit in audits]
    history = trajectories_table(files, audits)
    fresh = set(map(key_of, audits))
    packed, followed = (folder / name for name in EVIDENCE)
    if packed.exists():
        audits += [audit for audit in read_packed(packed) if key_of(audit) not in fresh]
    if followed.exists():
        old = read_table(followed)
        is_fresh = pd.MultiIndex.from_frame(old[list(KEY)]).isin(fresh)
        history = pd.concat([history, old[~is_fresh]], ignore_index=True)
    write_packed(packed, sorted(audits, key=key_of))
    write_tables({followed: history.sort_values([*KEY, "epoch", "layer"])})


def chosen_runs(folder: Path, settings: Sequence[str]) -> list[str]:
    """Return what the searches among some settings chose, as names of runs."""
    tidy = read_tidy([folder / setting / EVIDENCE[0] for setting in settings])
    chosen = choices(tidy.runs.assign(network=""))
    return sorted(map(name_of, chosen["run"], chosen["lr"], chosen["normalise"]))


def main() -> None:
    """Audit every trained run of the configuration, add it to the measured ones, and write what
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
            [name for name in searches if (options.into / name / EVIDENCE[0]).exists()],
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
        ", ".join(chosen_runs(options.into, searches)), 110, subsequent_indent=7 * " "
    )
    options.configfile.write_text(CHOSEN.sub(rf"\g<1>{runs}\g<2>", text), encoding="utf-8")
    return read(options.configfile)


def read(configfile: Path) -> Grid:
    config, line_of = load_config(configfile)
    return read_grid(config, where=line_of)


def measure(pool: ProcessPoolExecutor, grid: Grid, name: str, options: argparse.Namespace) -> None:
    """Audit the runs of a setting that are there, and add them to the measured ones."""
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
        add(options.into / name, audits, options.results)
        print(f"{name}: {len(audits)} audits", flush=True)


def is_search(setting: Setting) -> bool:
    """Return whether a setting holds out samples to choose by."""
    return bool(setting.spec(setting.runs[0], setting.seeds[0]).validation)


if __name__ == "__main__":
    main()
