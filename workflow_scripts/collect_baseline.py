"""Rule collect_baseline: what an audit needs to know of a frozen or shallow network."""

from typing import TYPE_CHECKING

from _workflow import logged

from fa_audit.files import read_json, write_json

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    sidecar = read_json(snakemake.input.sidecar)
    facts = {key: sidecar[key] for key in ("accuracy", "spec", "digest", "checkpoint_sha256")}
    write_json(snakemake.output.baseline, {"run": snakemake.wildcards.run} | facts)
