"""Rule draw_figure: one figure as PDF, PNG and SVG, with a record of its code and inputs."""

from _workflow import logged

from fa_audit.results.figures.files import write_figure

with logged(snakemake):
    out = snakemake.output
    write_figure(
        snakemake.params.entry, snakemake.input.evidence, [out.pdf, out.png, out.svg], out.origin
    )
