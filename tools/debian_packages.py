"""Install the programs that a group of tests needs, or print in one line why the tests cannot run
on this machine.

    python3 tools/debian_packages.py slurm|browser

Exit status 0: the programs are installed; 77: they cannot be installed. Uses apt-get, as root only.
A temporary /usr/sbin/policy-rc.d keeps Debian from starting the packages' daemons.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import browser
import slurm_cluster

# Group of tests, as in `make test-GROUP` -> its Debian packages, and a function that names the
# programs that this machine lacks.
GROUPS = {
    "slurm": (("munge", "slurm-wlm"), slurm_cluster.missing),
    "browser": (("chromium",), browser.missing),
}
POLICY = Path("/usr/sbin/policy-rc.d")
SKIPPED = 77
# Let apt-get fail soon if there is no network.
IMPATIENT = (
    "-o",
    "Acquire::Retries=0",
    "-o",
    "Acquire::http::Timeout=20",
    "-o",
    "Acquire::https::Timeout=20",
)


def obstacle() -> str:
    """Return why apt-get cannot be used; empty if it can."""
    if os.geteuid() != 0:
        return "only root can install them"
    return "" if shutil.which("apt-get") else "there is no apt-get"


@contextmanager
def no_daemons() -> Iterator[None]:
    """Prevent the daemons of packages installed in this context from starting."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def install(packages: tuple[str, ...]) -> str:
    """Install packages; return apt-get's last line if that failed, empty otherwise."""
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    with no_daemons():
        for command in (
            ["update", "-qq"],
            ["install", "-qq", "-y", "--no-install-recommends", *packages],
        ):
            done = subprocess.run(
                ["apt-get", *IMPATIENT, *command], env=environment, capture_output=True, text=True
            )
    said = (done.stdout + done.stderr).strip().splitlines()
    return f"apt-get: {said[-1] if said else 'failed'}" if done.returncode else ""


def main(group: str) -> int:
    packages, missing = GROUPS[group]
    if not missing():
        return 0
    names = " and ".join(packages)
    reason = obstacle()
    if reason:
        print(
            f"fa-audit: test-{group} skipped: {', '.join(missing())} not found (packages {names}),"
            f" and {reason}"
        )
        return SKIPPED
    print(f"fa-audit: installing {names}", flush=True)
    reason = install(packages)
    if reason:
        print(f"fa-audit: test-{group} skipped: {names} could not be installed ({reason})")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
