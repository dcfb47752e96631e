"""Rule build_table: one table as csv, markdown and LaTeX."""

from typing import TYPE_CHECKING

import pandas as pd
from _workflow import logged

from fa_audit.files import write_text
from fa_audit.registry import load
from fa_audit.tables import TABLES
from fa_audit.tables.formats import to_csv, to_latex, to_markdown

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    settings = snakemake.params.settings
    build = load("table", TABLES, settings["kind"])
    table = build(pd.read_csv(snakemake.input.tidy), title=settings["title"], labels=settings["labels"])
    for path, text in zip(snakemake.output, (to_csv(table), to_markdown(table), to_latex(table)), strict=True):
        write_text(path, text)
