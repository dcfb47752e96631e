"""Rule build_table: one table as csv, markdown and LaTeX, and where it comes from."""

from typing import TYPE_CHECKING

from _workflow import logged

from fa_audit.core.files import write_json, write_text
from fa_audit.core.registry import call
from fa_audit.results.origin import origin_of
from fa_audit.results.tables import TABLES
from fa_audit.results.tables.formats import Table, to_csv, to_html, to_latex, to_markdown
from fa_audit.results.tidy import read_tidy

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    entry = snakemake.params.entry
    tidy = read_tidy(snakemake.input.tidy)
    origin = origin_of(entry, tidy.runs["digest"], snakemake.input.tidy)
    table = call("table", TABLES, entry["kind"], Table, tidy, title=entry["title"], labels=entry["labels"])
    write_text(snakemake.output.csv, to_csv(table))
    write_text(snakemake.output.markdown, to_markdown(table))
    write_text(snakemake.output.latex, to_latex(table, str(origin)))
    write_text(snakemake.output.html, to_html(table))
    write_json(snakemake.output.origin, origin.to_dict())
