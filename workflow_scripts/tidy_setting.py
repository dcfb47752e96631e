"""Rule tidy_setting: audits and trajectories of one setting as tables."""

from typing import TYPE_CHECKING

from _workflow import logged

from fa_audit.results.tidy import layers_table, read_audits, runs_table, trajectories_table, work_table, write_tables

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    audits = read_audits(snakemake.input.audits)
    tables = {"runs": runs_table(audits), "layers": layers_table(audits), "work": work_table(audits)}
    tables["trajectories"] = trajectories_table(snakemake.input.trajectories, audits)
    write_tables({snakemake.output[name]: table for name, table in tables.items()})
