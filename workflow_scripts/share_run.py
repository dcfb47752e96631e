"""Rule share_run: copy a trained run to another setting that has the same run."""

from pathlib import Path

from _workflow import logged

from fa_audit.core.files import write_bytes
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.sidecar import read_training

with logged(snakemake):
    files, spec = snakemake.input, RunSpec.from_dict(snakemake.params.spec)
    read_training(files.sidecar, spec, checkpoint=files.checkpoint, trajectory=files.trajectory)
    for source, target in zip(files, snakemake.output, strict=True):
        write_bytes(target, Path(source).read_bytes())
