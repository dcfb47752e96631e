"""Rule train_network: one checkpoint, its sidecar and its trajectory."""

from pathlib import Path

from _workflow import device, logged

from fa_audit.core.numerics import set_numerics
from fa_audit.data.dataset import load_dataset
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.resume import Resume
from fa_audit.training.run_files import train_run, training_origin

# The training removes leftovers itself, once no other process is at work on them.
with logged(snakemake, leftovers=False), device(snakemake) as where:
    files, out, params = snakemake.input, snakemake.output, snakemake.params
    set_numerics(params.torch_threads)
    spec = RunSpec.from_dict(params.spec)
    # Do not resume from a state that was saved with other code or other data.
    origin = f"{training_origin(spec, [files.data], where)} {params.code} {params.origin}"
    state = RunKey.of(out.checkpoint).path("resume", "safetensors")
    train_run(
        spec,
        load_dataset(files.data),
        out.checkpoint,
        sidecar=out.sidecar,
        trajectory=out.trajectory,
        resume=Resume(Path(state), origin),
        device=where,
    )
