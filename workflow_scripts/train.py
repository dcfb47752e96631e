"""Rule train_network: one checkpoint, its sidecar and its trajectory."""

from pathlib import Path
from typing import TYPE_CHECKING

from _workflow import device, logged

from fa_audit.checkpoint import Resume
from fa_audit.data import load_dataset
from fa_audit.numerics import set_numerics
from fa_audit.runfiles import fingerprint, train_run
from fa_audit.spec import RunSpec

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake, leftovers=False), device(snakemake) as where:
    files, out, wild = snakemake.input, snakemake.output, snakemake.wildcards
    spec = RunSpec.from_dict(snakemake.params.spec)
    set_numerics(snakemake.params.torch_threads)
    path = Path(f"results/resume/{wild.setting}/{wild.run}/seed{wild.seed}.safetensors")
    resume = Resume(path, f"{fingerprint(spec, [files.data], where)} {snakemake.params.code}")
    outputs = {"checkpoint": out.checkpoint, "sidecar": out.sidecar, "trajectory": out.trajectory}
    train_run(spec, load_dataset(files.data), **outputs, resume=resume, device=where)
