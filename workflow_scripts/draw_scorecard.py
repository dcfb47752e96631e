"""Rule draw_scorecard: the scorecard as PDF, PNG and SVG, and where it comes from."""

from _workflow import logged

from fa_audit.core.files import write_json
from fa_audit.core.origin import origin_of
from fa_audit.results.figures.scorecard_figure import draw
from fa_audit.results.figures.style import save
from fa_audit.results.tidy import read_table

with logged(snakemake):
    origin = origin_of({"kind": "scorecard"}, [], [snakemake.input.scorecard])
    figure = draw(read_table(snakemake.input.scorecard), title="Scorecard")
    for path in (snakemake.output.pdf, snakemake.output.png, snakemake.output.svg):
        save(figure, path, str(origin))
    write_json(snakemake.output.origin, origin.to_dict())
