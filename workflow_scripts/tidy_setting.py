"""Rule tidy_setting: audits and trajectories of one setting as tables."""

from typing import TYPE_CHECKING

from _workflow import logged

from fa_audit.experiments.paths import TIDY
from fa_audit.results.tidy import read_audits, tidy_of, write_tables

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    tidy = tidy_of(read_audits(snakemake.input.audits), snakemake.input.trajectories)
    write_tables({snakemake.output[name]: getattr(tidy, name) for name in TIDY})
