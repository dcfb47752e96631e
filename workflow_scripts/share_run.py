"""Rule share_run: the results of a run under the name that another setting gives it."""

from pathlib import Path
from typing import TYPE_CHECKING

from _workflow import logged

from fa_audit.files import write_bytes

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    for name in ("checkpoint", "sidecar", "trajectory"):
        write_bytes(snakemake.output[name], Path(snakemake.input[name]).read_bytes())
