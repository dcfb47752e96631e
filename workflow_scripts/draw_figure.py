"""Rule draw_figure: one figure as PDF, PNG and SVG, with a record of its code and inputs."""

from _workflow import logged

from fa_audit.results.figures.files import write_figure
from fa_audit.results.tidy import read_tidy

with logged(snakemake):
    entry, inputs = snakemake.params.entry, snakemake.input.evidence
    *figures, origin = snakemake.output
    tidy = read_tidy(inputs, entry.get("runs", ()))
    write_figure(entry, tidy, inputs, figures, origin)
