"""Rule sweep_trajectory: one method at one penalty and seed over training."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from _workflow import logged

from fa_audit.files import write_text
from fa_audit.sweep import sweep_trajectory

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    audit = json.loads(Path(snakemake.input.audit).read_text(encoding="utf-8"))
    table = sweep_trajectory(pd.read_csv(snakemake.input.trajectory), audit)
    write_text(snakemake.output.trajectory, table.to_csv(index=False))
