"""Rule train_network: one checkpoint, its sidecar and its trajectory."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from _workflow import device, logged

from fa_audit.checkpoint import Resume
from fa_audit.data import load_dataset
from fa_audit.files import exclusive, remove_leftovers, sha256_of
from fa_audit.numerics import set_numerics
from fa_audit.runfiles import write_run
from fa_audit.spec import RunSpec
from fa_audit.training import train

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake), device(snakemake) as where:
    out, wild = snakemake.output, snakemake.wildcards
    spec = RunSpec.from_dict(snakemake.params.spec)
    set_numerics(snakemake.params.torch_threads)
    content = sha256_of([snakemake.input.data, *snakemake.input.code])
    kind = torch.device(where).type
    fingerprint = f"{spec.digest} {content} {torch.__version__} {kind} {snakemake.params.torch_threads}"
    resume = Resume(Path(f"results/resume/{wild.setting}/{wild.run}/seed{wild.seed}.safetensors"), fingerprint)
    with exclusive(resume.path.with_suffix(".lock")):  # a killed workflow's training may still be at work
        remove_leftovers(resume.path, *out)
        trained = train(spec, load_dataset(snakemake.input.data), device=where, resume=resume)
        write_run(trained, out.checkpoint, sidecar=out.sidecar, trajectory=out.trajectory, device=where)
        resume.clear()
