"""Rule train_network: one checkpoint, its sidecar and its trajectory."""

from dataclasses import replace
from pathlib import Path

from _workflow import device, logged

from fa_audit.core.files import digest_of
from fa_audit.core.numerics import set_numerics
from fa_audit.data.dataset import load_dataset
from fa_audit.experiments.paths import RECORD, RunKey
from fa_audit.experiments.spec import RunSpec, parse_run
from fa_audit.training.resume import Resume
from fa_audit.training.run_files import train_run, training_origin


def state(key: RunKey, **of_another: int) -> Resume:
    """Return the file that keeps a training's state: this training's, or another snapshot's."""
    spec = replace(RunSpec.from_dict(snakemake.params.spec), **of_another)
    planned = digest_of(
        [spec.digest, snakemake.params.code, snakemake.params.origin]
    )  # as `Origins.network`
    origin = training_origin(spec, [snakemake.input.data], where) + RECORD + planned
    return Resume(Path(key.path("resume", "safetensors")), origin, keep=bool(spec.snapshot))


with logged(snakemake, leftovers=False), device(snakemake) as where:
    files, out, wild = snakemake.input, snakemake.output, snakemake.wildcards
    spec = RunSpec.from_dict(snakemake.params.spec)
    set_numerics(snakemake.params.torch_threads)
    resume = state(RunKey(wild.setting, wild.run, int(wild.seed)))
    for earlier in map(RunKey.of, files.previous):
        resume = replace(resume, previous=state(earlier, snapshot=parse_run(earlier.run).snapshot))
    outputs = {"checkpoint": out.checkpoint, "sidecar": out.sidecar, "trajectory": out.trajectory}
    previous = "".join(RunKey.of(path).run for path in files.previous)  # one, or none
    train_run(
        spec, load_dataset(files.data), **outputs, resume=resume, device=where, previous=previous
    )
