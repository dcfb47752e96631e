"""Rule tidy_setting: one setting's audits and trajectories as tables, its audits as one JSON."""

from dataclasses import replace

from _workflow import logged

from fa_audit.experiments.paths import TIDY
from fa_audit.results.tidy import (
    read_audits,
    tidy_of,
    trajectories_table,
    write_packed,
    write_tables,
)

with logged(snakemake):
    audits = read_audits(snakemake.input.audits)
    history = trajectories_table(snakemake.input.trajectories, audits)
    tidy = replace(tidy_of(audits), trajectories=history)
    write_tables({snakemake.output[name]: getattr(tidy, name) for name in TIDY})
    write_packed(snakemake.output.audits, audits)
