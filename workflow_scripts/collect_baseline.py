"""Rule collect_baseline: what an audit needs to know of a frozen or shallow network."""

from typing import TYPE_CHECKING

from _workflow import logged

from fa_audit.core.files import write_json
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.sidecar import check_spec, read_sidecar

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    kept = ("accuracy", "spec", "digest", "checkpoint_sha256")
    sidecar = read_sidecar(snakemake.input.sidecar)
    check_spec(RunSpec.from_dict(sidecar["spec"]), RunSpec.from_dict(snakemake.params.spec), snakemake.input.sidecar)
    facts = {key: sidecar[key] for key in kept}
    write_json(snakemake.output.baseline, {"run": snakemake.wildcards.run} | facts)
