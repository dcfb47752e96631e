"""Rule tidy: the tables of all settings in one."""

from typing import TYPE_CHECKING

import pandas as pd
from _workflow import logged

from fa_audit.files import write_text

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    table = pd.concat([pd.read_csv(path) for path in snakemake.input.parts], ignore_index=True)
    write_text(snakemake.output.table, table.to_csv(index=False))
