"""Rule build_table: one table as csv, markdown and LaTeX, and where it comes from."""

from _workflow import logged

from fa_audit.results.tables.files import write_table

with logged(snakemake):
    out = snakemake.output
    write_table(
        snakemake.params.entry,
        snakemake.input.evidence,
        [out.csv, out.markdown, out.latex, out.html],
        out.origin,
    )
