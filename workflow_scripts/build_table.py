"""Rule build_table: one table in every format, and a record of its code and inputs."""

from _workflow import logged

from fa_audit.results.tables.files import write_table
from fa_audit.results.tidy import read_tidy

with logged(snakemake):
    *tables, origin = snakemake.output
    entry, inputs = snakemake.params.entry, snakemake.input.evidence
    write_table(entry, read_tidy(inputs, entry.get("runs", ())), inputs, tables, origin)
