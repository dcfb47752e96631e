"""Rule draw_scorecard: the scorecard as PDF, PNG and SVG, with a record of its code and inputs."""

from _workflow import logged

from fa_audit.core.files import write_json
from fa_audit.core.origin import origin_of
from fa_audit.results.figures.scorecard_figure import draw
from fa_audit.results.figures.style import save
from fa_audit.results.tidy import read_table

with logged(snakemake):
    source = snakemake.input.scorecard
    *figures, record = snakemake.output
    origin = origin_of({"kind": "scorecard"}, [], [source])
    figure = draw(read_table(source), title="Scorecard")
    for path in figures:
        save(figure, path, str(origin))
    write_json(record, origin.to_dict())
