"""Rule build_scorecard: published numbers against reproduced ones, as csv and markdown."""

from _workflow import logged

from fa_audit.core.files import write_json
from fa_audit.core.origin import origin_of
from fa_audit.experiments.published import read_published_file
from fa_audit.results.scorecard import scorecard
from fa_audit.results.scorecard_texts import write_scorecard
from fa_audit.results.tidy import read_audits, tidy_of

with logged(snakemake):
    files, out = snakemake.input, snakemake.output
    published = read_published_file(files.published)
    audits = read_audits(files.audits)
    tidy = tidy_of(audits, files.trajectories)
    rows = scorecard(published, tidy)
    digests = [audit.digest for audit in audits]
    origin = origin_of(
        {"kind": "scorecard"}, digests, [files.published, *files.audits, *files.trajectories]
    )
    write_scorecard(published, rows, [out.csv, out.markdown])
    write_json(out.origin, origin.to_dict())
