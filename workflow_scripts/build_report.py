"""Rule build_report: everything of a configuration on one page."""

from collections import defaultdict
from functools import reduce
from pathlib import Path

from _workflow import logged

from fa_audit.core.files import write_text
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.published import read_published_file
from fa_audit.results.own_audits import alone, read_own, together
from fa_audit.results.page.document import Artefact, claims_of, page
from fa_audit.results.scorecard import scorecard
from fa_audit.results.tidy import KEY, read_audits, read_tidy


def artefacts(section: str) -> list[Artefact]:
    """Return the figures or the tables with their files."""
    by_name = defaultdict(list)
    for path in map(Path, snakemake.input.artefacts):
        by_name["figures" if path.stem == "scorecard" else path.parent.name, path.stem].append(path)
    words, own = (
        snakemake.params.words,
        {name: files for (folder, name), files in by_name.items() if folder == section},
    )
    return [
        Artefact(name, *words[f"{section}/{name}"], tuple(files)) for name, files in own.items()
    ]


with logged(snakemake):
    files, claims = snakemake.input, ([], "")
    audits = {RunKey(*(audit[name] for name in KEY)): audit for audit in read_audits(files.audits)}
    tables = [read_tidy(files.tidy)] if files.tidy else []
    if files.published:
        published = read_published_file(files.published)
        claims = claims_of(published, scorecard(published, *tables))
    if files.models:
        models, theirs = alone(read_own(files.models))
        tables, audits = [*tables, models], audits | theirs
    tidy = reduce(together, tables)
    text = page(
        tidy,
        [*files.tidy, *files.audits, *files.models, *files.artefacts],
        audits=audits,
        labels=snakemake.params.labels,
        claims=claims,
        figures=artefacts("figures"),
        tables=artefacts("tables"),
    )
    write_text(snakemake.output.page, text)
