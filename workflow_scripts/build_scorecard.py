"""Rule build_scorecard: published numbers against reproduced ones, as csv and markdown."""

from _workflow import logged

from fa_audit.core.files import write_json, write_text
from fa_audit.core.origin import origin_of
from fa_audit.experiments.published import read_published_file
from fa_audit.results.scorecard import scorecard
from fa_audit.results.scorecard_texts import to_markdown
from fa_audit.results.tidy import read_tidy

with logged(snakemake):
    files, out = snakemake.input, snakemake.output
    published = read_published_file(files.published)
    tidy = read_tidy(files.evidence)
    rows = scorecard(published, tidy)
    write_text(out.csv, rows.to_csv(index=False))
    write_text(out.markdown, to_markdown(published, rows))
    inputs = [files.published, *files.evidence]
    origin = origin_of({"kind": "scorecard"}, tidy.runs["digest"], inputs)
    write_json(out.origin, origin.to_dict())
