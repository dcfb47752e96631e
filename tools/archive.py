"""Pack the results of a configuration, with Snakemake's records of them, so that nothing reruns in a clone elsewhere.

python tools/archive.py [--configfile FILE] [ARCHIVE.tar]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from fa_audit.core.errors import AuditError, printable
from fa_audit.core.files import write_atomically, write_text
from fa_audit.core.folder import claim
from fa_audit.experiments.paths import LOCK
from fa_audit.results.verify import MANIFEST, SUMS, mismatches, recorded, sums

PACKED = (Path("results"), Path(".snakemake/metadata"))
# The clone has its README.md; resume/ is unfinished work; the list is written anew.
LEFT_OUT = (Path("results/README.md"), Path("results/resume"), Path(LOCK), Path(SUMS))


def main() -> int:
    """Pack the working folder's results; return the exit status, 1 after an error of one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, nargs="?", default=Path("results.tar"), metavar="ARCHIVE.tar")
    parser.add_argument("--configfile", type=Path, default=Path("config.yaml"), metavar="FILE")
    options = parser.parse_args()
    try:
        check(options.archive, options.configfile)
        files = sorted([options.configfile, *results()])
        write_text(SUMS, sums(files))
        write_atomically(options.archive, lambda part: write_tar(part, [Path(SUMS), *files]))
    except (AuditError, OSError) as error:
        print(f"fa-audit: {printable(str(error))}", file=sys.stderr)
        return 1
    print(f"{options.archive}: {options.archive.stat().st_size / 1e6:.1f} MB. In a fresh clone of the same commit:")
    print(f"  tar -xf {options.archive.name} && make verify && snakemake -n --configfile {options.configfile}")
    return 0


def check(archive: Path, configfile: Path) -> None:
    """Refuse to pack results that are incomplete, stale or altered, or that a workflow is writing."""
    if archive.suffix != ".tar" or archive.resolve().is_relative_to(Path("results").resolve()):
        raise AuditError(f"archive: found '{archive}'; expected a name that ends in .tar, outside results/.")
    if configfile.is_absolute() or ".." in configfile.parts or not configfile.is_file():
        raise AuditError(f"configuration: found '{configfile}'; expected the path of a file in this folder.")
    claim(LOCK)
    plan = [sys.executable, "-m", "snakemake", "--dry-run", "--configfile", str(configfile)]
    done = subprocess.run(plan, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if "Nothing to be done" not in done.stdout:
        raise AuditError(
            f"results of {configfile} are incomplete or stale: snakemake -n --configfile {configfile} lists what is to"
            " be done. Do it first, or name the configuration of your results with CONFIG=FILE."
        )
    Path(SUMS).unlink(missing_ok=True)  # of an earlier archive
    if os.path.exists(MANIFEST) and (altered := next(mismatches(recorded()), None)):
        raise AuditError(f"{altered}. Make it again: delete it and run snakemake --configfile {configfile}.")


def results() -> Iterator[Path]:
    """Yield every result and record, linked folders included; skip states to resume from and temporary files."""
    for root in PACKED:
        for folder, _, names in os.walk(root, followlinks=True):
            for path in (Path(folder) / name for name in names):
                half_written = path.name.startswith(".") and ".part" in path.suffixes
                if path.is_file() and not half_written and not any(map(path.is_relative_to, LEFT_OUT)):
                    yield path


def write_tar(part: Path, files: list[Path]) -> None:
    """Write an archive without the names of users; the same files give the same bytes."""
    with tarfile.open(part, "w", dereference=True) as tar:
        for path in files:
            tar.add(path, recursive=False, filter=anonymous)


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
    member.mode, member.mtime = 0o644, int(member.mtime) if member.name != SUMS else 0
    return member


if __name__ == "__main__":
    sys.exit(main())
