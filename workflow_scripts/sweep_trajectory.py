"""Rule sweep_trajectory: one method at one penalty and seed over training."""

from typing import TYPE_CHECKING

import pandas as pd
from _workflow import logged

from fa_audit.core.files import write_text
from fa_audit.results.sweep import sweep_trajectory
from fa_audit.results.tidy import read_audits

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    (audit,) = read_audits([snakemake.input.audit])
    table = sweep_trajectory(pd.read_csv(snakemake.input.trajectory), audit)
    write_text(snakemake.output.trajectory, table.to_csv(index=False))
