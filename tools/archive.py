"""Pack the results of a configuration, with Snakemake's records of them, so that unpacked elsewhere nothing runs again.

python tools/archive.py [--configfile FILE] [ARCHIVE.tar]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "workflow_scripts"))
sys.path.append(os.getcwd())  # methods and models of the user's own

from _code import code_files
from _folder import link_to_nothing
from _lock import claim_folder
from _records import RECORDS, recorded_path, settle

from fa_audit.core.errors import AuditError, printable
from fa_audit.core.files import sha256_of, write_atomically
from fa_audit.experiments.grid import read_grid
from fa_audit.experiments.spec import parse_run
from fa_audit.methods import METHODS
from fa_audit.results.verification import ARCHIVED, MANIFEST, verified
from fa_audit.training.sidecar import check_run, read_sidecar

RESULTS, SCHEMA = Path("results"), Path("schemas/config.schema.yaml")
# The clone has its README.md; resume/ is unfinished work; another archive's list was unpacked with it.
LEFT_OUT = (RESULTS / "README.md", RESULTS / "resume", ARCHIVED)
UNRECORDED = (RESULTS / "logs", RESULTS / "benchmarks")  # nothing is made from them


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack the working folder's results; returns the exit status: 0 packed, 1 refused with one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, nargs="?", default=Path("results.tar"), metavar="ARCHIVE.tar")
    parser.add_argument("--configfile", type=Path, default=Path("config.yaml"), metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        check_names(options.archive, options.configfile)
        check_results(options.configfile)
        files = results_and_records()
        check_records(files, options.configfile)
        named = files_of_the_user(options.configfile)
        files += [options.configfile, *(path for path in named if in_project(path))]
        write_atomically(options.archive, partial(write_tar, files=sorted(set(files))))
    except (AuditError, OSError) as error:
        print(f"fa-audit: {printable(str(error))}", file=sys.stderr)
        return 1
    say(options.archive, options.configfile, named)
    return 0


def say(archive: Path, configfile: Path, named: Sequence[Path]) -> None:
    """What was packed, what must be taken along by hand, and what to do with it."""
    print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB. In a fresh clone:")
    print(f"  tar -xf {archive.name} && make verify && snakemake -n all --configfile {configfile}")
    if inside := [str(path) for path in named if in_project(path)]:
        print(f"With the files of your own that {configfile} names: {', '.join(inside)}")
    if outside := [str(path) for path in named if not in_project(path)]:
        print(f"Not in it, since they lie elsewhere; needed there under the same names: {', '.join(outside)}")


def check_names(archive: Path, configfile: Path) -> None:
    """Refuse an archive that would hold itself, and a configuration that cannot be unpacked into a clone."""
    if archive.suffix != ".tar" or archive.resolve().is_relative_to(RESULTS.resolve()):
        raise AuditError(f"archive: found '{archive}'; expected a name that ends in .tar, outside results/.")
    if configfile.is_absolute() or ".." in configfile.parts or not configfile.is_file():
        raise AuditError(
            f"configuration: found '{configfile}'; expected a file in {Path.cwd()}, relative to it: put it there."
        )


def check_results(configfile: Path) -> None:
    """Refuse results that are missing, incomplete, stale or altered, or that a workflow is writing.

    The lock is held until this process ends, so that nothing changes while it is packed.
    """
    if not any(RECORDS.glob("*")):
        raise AuditError(f"nothing to pack: no results in {Path.cwd()} that snakemake has made; run it first.")
    claim_folder()
    settle()
    if (jobs := jobs_to_do(configfile)) != 0:
        raise AuditError(
            f"results of {configfile} are incomplete or stale: {jobs} jobs to do (snakemake -n --configfile"
            f" {configfile} lists them). Do them first, or name the configuration of your results with CONFIG=FILE."
        )
    if MANIFEST.is_file() and (problems := verified([MANIFEST])[0]):
        raise AuditError(problems[0])
    checkpoints = RESULTS / "checkpoints"
    for path in files_below(checkpoints) if checkpoints.exists() else ():
        if path.suffix == ".json" and not is_leftover(path):
            check_training(path)


def check_training(sidecar: Path) -> None:
    """Refuse a checkpoint or a trajectory that was altered: no job may be left that reads it."""
    trajectory = RESULTS / "trajectories" / sidecar.relative_to(RESULTS / "checkpoints")
    files = {"checkpoint": sidecar.with_suffix(".safetensors"), "trajectory": trajectory.with_suffix(".csv")}
    there = {kind: path for kind, path in files.items() if path.exists()}
    check_run(read_sidecar(sidecar), sidecar, **there)


def jobs_to_do(configfile: Path) -> int:
    """How many jobs Snakemake would do for everything in a configuration."""
    dry_run = ["all", "--dry-run", "--quiet", "rules", "--configfile", str(configfile)]
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *dry_run], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if "Nothing to be done" in done.stdout:
        return 0
    if done.returncode or not (total := re.search(r"^total +(\d+)$", done.stdout, re.MULTILINE)):
        reason = re.findall(r"^fa-audit: (.+)$", done.stdout, re.MULTILINE) or done.stdout.strip().splitlines()[-1:]
        raise AuditError(f"snakemake cannot plan {configfile}: {' '.join(reason)}")
    return int(total[1]) - 1  # without the target rule


def results_and_records() -> list[Path]:
    """Every result and every record; neither unfinished trainings nor what a killed process left behind."""
    found = [*files_below(RESULTS), *files_below(RECORDS)]
    return [path for path in found if not (is_leftover(path) or any(map(path.is_relative_to, LEFT_OUT)))]


def is_leftover(path: Path) -> bool:
    return path.name.startswith(".") and ".part" in path.suffixes


def files_below(folder: Path, above: Sequence[Path] = ()) -> Iterator[Path]:
    """Every file of a folder, those of linked folders too; a link to a folder that it lies in is not followed."""
    real = folder.resolve()
    for path in sorted(folder.iterdir()) if real not in above else ():
        if path.is_dir():
            yield from files_below(path, (*above, real))
        elif path.is_file():
            yield path
        elif path.is_symlink():
            raise link_to_nothing(path)


def check_records(files: Sequence[Path], configfile: Path) -> None:
    """Refuse results without records, which would look stale elsewhere, and records of what is not packed."""
    recorded = {recorded_path(path) for path in files if path.is_relative_to(RECORDS)}
    if lacking := sorted(path for path in recorded.difference(files) if path.exists()):
        raise AuditError(f"{lacking[0]}: snakemake made it outside {RESULTS}/, so that the archive would lack it.")
    made = {path for path in files if path.is_relative_to(RESULTS) and not any(map(path.is_relative_to, UNRECORDED))}
    if bare := sorted(made - recorded):
        raise AuditError(
            f"{bare[0]}{f' and {len(bare) - 1} more files' if bare[1:] else ''}: no record of how snakemake made it, so"
            f" that it would look stale elsewhere. Write all records with snakemake --touch --forceall --configfile"
            f" {configfile}; what is of another configuration or no result, move out of {RESULTS}/."
        )


def files_of_the_user(configfile: Path) -> list[Path]:
    """What a configuration names that is not the project's: weights of models, modules of models and methods."""
    config, schema = (yaml.safe_load(path.read_text("utf-8")) for path in (configfile, SCHEMA))
    runs = {
        run for setting in read_grid(config, schema).settings.values() for run in (*setting.runs, *setting.baselines)
    }
    models = config.get("models", {}).values()
    entries = {parse_run(run).method for run in runs} - METHODS.keys() | {model["model"] for model in models}
    modules = {entry.partition(":")[0] for entry in entries}
    packages = {path for name in modules for path in Path(name.partition(".")[0]).rglob("*.py")}
    weights = {Path(model["weights"]) for model in models if model.get("weights")}
    found = weights | packages | set(map(Path, code_files(*sorted(modules))))
    return sorted(path for path in found if path.parts[0] not in ("src", "workflow_scripts"))


def in_project(path: Path) -> bool:
    return not path.is_absolute() and ".." not in path.parts


def write_tar(part: Path, files: Sequence[Path]) -> None:
    """The same files give the same bytes, whoever packs them; their list is first: half an archive does not verify."""
    with tarfile.open(part, "w", dereference=True) as tar:
        listed = json.dumps({"files": {str(path): sha256_of(path) for path in files}}, indent=2).encode()
        first = tarfile.TarInfo(str(ARCHIVED))
        first.size, first.mtime = len(listed), max(int(path.stat().st_mtime) for path in files)
        tar.addfile(first, io.BytesIO(listed))
        for path in files:
            tar.add(path, recursive=False, filter=nobody_s)


def nobody_s(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
    member.mode, member.mtime = 0o644, int(member.mtime)
    return member


if __name__ == "__main__":
    sys.exit(main())
