"""Rule share_run: the results of a run under the name that another setting gives it."""

import shutil
from functools import partial
from typing import TYPE_CHECKING

from _workflow import logged

from fa_audit.files import write_atomically

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    for name in ("checkpoint", "sidecar", "trajectory"):
        write_atomically(snakemake.output[name], partial(shutil.copyfile, snakemake.input[name]))
