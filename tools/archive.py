"""Pack the results of a configuration, with Snakemake's records of them, so that unpacked elsewhere nothing runs again.

python tools/archive.py [--configfile FILE] [ARCHIVE.tar]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "workflow_scripts"))

from _lock import claim_folder

from fa_audit.errors import AuditError
from fa_audit.files import write_atomically
from fa_audit.verification import mismatches

RESULTS, RECORDS, MANIFEST = Path("results"), Path(".snakemake/metadata"), Path("results/MANIFEST.json")
LEFT_OUT = (Path("results/README.md"), Path("results/resume"))  # the clone has the one; the other is unfinished work


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack the working folder's results; returns the exit status: 0 packed, 1 refused with one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, nargs="?", default=Path("results.tar"), metavar="ARCHIVE.tar")
    parser.add_argument("--configfile", type=Path, default=Path("config.yaml"), metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        check_names(options.archive, options.configfile)
        check_results(options.configfile)
        files = [*packed_files(), options.configfile]
        write_atomically(options.archive, partial(write_tar, files=files))
    except (AuditError, OSError) as error:
        print(f"fa-audit: {error}", file=sys.stderr)
        return 1
    print(f"{options.archive}: {len(files)} files, {options.archive.stat().st_size / 1e6:.1f} MB. In a fresh clone:")
    print(f"  tar -xf {options.archive.name} && make verify && snakemake -n --configfile {options.configfile}")
    return 0


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
    if (jobs := jobs_to_do(configfile)) != 0:
        raise AuditError(
            f"results of {configfile} are incomplete or stale: {jobs} jobs to do (snakemake -n --configfile"
            f" {configfile} lists them). Do them first, or name the configuration of your results with CONFIG=FILE."
        )
    if MANIFEST.is_file() and (problems := mismatches(MANIFEST)):
        raise AuditError(problems[0])


def jobs_to_do(configfile: Path) -> int:
    """How many jobs Snakemake would do for everything in a configuration."""
    dry_run = ["--dry-run", "--quiet", "rules", "--configfile", str(configfile)]
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *dry_run], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if "Nothing to be done" in done.stdout:
        return 0
    if done.returncode or not (total := re.search(r"^total +(\d+)$", done.stdout, re.MULTILINE)):
        reason = re.findall(r"^fa-audit: (.+)$", done.stdout, re.MULTILINE) or done.stdout.strip().splitlines()[-1:]
        raise AuditError(f"snakemake cannot plan {configfile}: {' '.join(reason)}")
    return int(total[1]) - 1  # without the target rule


def packed_files() -> Iterator[Path]:
    """Every result and every record, sorted; neither unfinished trainings nor what a killed process left behind."""
    for path in sorted([*RESULTS.rglob("*"), *RECORDS.rglob("*")]):
        unfinished = path.name.startswith(".") and ".part" in path.suffixes
        if path.is_file() and not unfinished and not any(path.is_relative_to(other) for other in LEFT_OUT):
            yield path


def write_tar(part: Path, files: Sequence[Path]) -> None:
    """The same files give the same bytes, whoever packs them."""
    with tarfile.open(part, "w", dereference=True) as tar:
        for path in files:
            tar.add(path, recursive=False, filter=nobody_s)


def nobody_s(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="", gname="", mtime=int(member.mtime), deep=False)


if __name__ == "__main__":
    sys.exit(main())
