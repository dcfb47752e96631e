"""Rule share_run: copy a trained run to another setting that has the same run."""

from pathlib import Path

from _workflow import logged

from fa_audit.core.files import write_bytes
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.sidecar import check_run, check_spec, read_sidecar

with logged(snakemake):
    files, spec = snakemake.input, RunSpec.from_dict(snakemake.params.spec)
    sidecar = read_sidecar(files.sidecar)
    check_run(sidecar, files.sidecar, checkpoint=files.checkpoint, trajectory=files.trajectory)
    check_spec(RunSpec.from_dict(sidecar["spec"]), spec, files.sidecar)
    for source, target in zip(files, snakemake.output, strict=True):
        write_bytes(target, Path(source).read_bytes())
