"""Rule sweep_table: the last epochs of a sweep's trajectories."""

from typing import TYPE_CHECKING

from _workflow import logged

from fa_audit.core.files import write_text
from fa_audit.results.sweep import read_sweep, sweep_table

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    table = sweep_table(list(map(read_sweep, snakemake.input.trajectories)))
    write_text(snakemake.output.table, table.to_csv(index=False))
