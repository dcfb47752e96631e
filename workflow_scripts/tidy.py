"""Rule tidy: the tables of all settings in one."""

import pandas as pd
from _workflow import logged

from fa_audit.results.tidy import read_table, write_tables

with logged(snakemake):
    table = pd.concat(map(read_table, snakemake.input.parts), ignore_index=True)
    write_tables({snakemake.output.table: table})
