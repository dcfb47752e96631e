"""Rule build_report: all runs, figures and tables of a configuration on one page."""

from pathlib import Path

from _workflow import logged

from fa_audit.core.files import write_text
from fa_audit.documents.formats import Table
from fa_audit.experiments.published import read_published_file
from fa_audit.results.page.render import Artefact, page
from fa_audit.results.page.runs import read_runs
from fa_audit.results.scorecard import claims as claims_of
from fa_audit.results.scorecard_texts import summary_line
from fa_audit.results.tidy import read_table


def artefacts(paths: list[str]) -> list[Artefact]:
    """Return figures or tables with their titles and captions."""
    found = []
    for file in map(Path, paths):
        words = snakemake.params.words[f"{file.parent.name}/{file.stem}"]
        found.append(Artefact(*words, file))
    return found


def claims() -> Table | None:
    """Return the paper's claims; None if no setting of the paper was run."""
    if not snakemake.input.published:
        return None
    rows = read_table(snakemake.input.scorecard)
    found = claims_of(read_published_file(snakemake.input.published), rows)
    cells = found[["sentence", "verdict", "told"]].itertuples(index=False, name=None)
    return Table(summary_line(rows), ("claim", "verdict", "published numbers"), tuple(cells))


with logged(snakemake):
    files = snakemake.input
    text = page(
        read_runs([*files.audits, *files.models], snakemake.params.labels),
        claims=claims(),
        figures=artefacts(files.figures),
        tables=artefacts(files.tables),
    )
    write_text(snakemake.output.page, text)
