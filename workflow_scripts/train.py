"""Rule train_network: one checkpoint, its sidecar and its trajectory."""

from pathlib import Path

from _workflow import device, logged

from fa_audit.core.files import digest_of
from fa_audit.core.numerics import set_numerics
from fa_audit.data.dataset import load_dataset
from fa_audit.experiments.paths import RECORD, RunKey
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.resume import Resume
from fa_audit.training.run_files import train_run, training_origin

with logged(snakemake, leftovers=False), device(snakemake) as where:
    files, out, wild = snakemake.input, snakemake.output, snakemake.wildcards
    params = snakemake.params
    set_numerics(params.torch_threads)
    spec = RunSpec.from_dict(params.spec)
    planned = digest_of([spec.digest, params.code, params.origin])  # as `Origins.network`
    origin = training_origin(spec, [files.data], where) + RECORD + planned
    state = RunKey(wild.setting, wild.run, int(wild.seed)).path("resume", "safetensors")
    train_run(
        spec,
        load_dataset(files.data),
        out.checkpoint,
        sidecar=out.sidecar,
        trajectory=out.trajectory,
        resume=Resume(Path(state), origin),
        device=where,
    )
