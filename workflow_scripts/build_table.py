"""Rule build_table: one table in every format, and a record of its code and inputs."""

from _workflow import logged

from fa_audit.results.tables.files import write_table

with logged(snakemake):
    *tables, origin = snakemake.output
    write_table(snakemake.params.entry, snakemake.input.evidence, tables, origin)
