"""Rule train_network: one checkpoint, its sidecar and its trajectory."""

from pathlib import Path
from typing import TYPE_CHECKING

from _workflow import device, logged

from fa_audit.core.code import digest_of
from fa_audit.core.numerics import set_numerics
from fa_audit.data.dataset import load_dataset
from fa_audit.experiments.lineage import RECORD
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.resume import Resume
from fa_audit.training.run_files import fingerprint, train_run

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake, leftovers=False), device(snakemake) as where:
    files, out, wild = snakemake.input, snakemake.output, snakemake.wildcards
    spec = RunSpec.from_dict(snakemake.params.spec)
    set_numerics(snakemake.params.torch_threads)
    path = RunKey(wild.setting, wild.run, int(wild.seed)).path("resume", "safetensors")
    lineage = digest_of([spec.digest, snakemake.params.code, snakemake.params.upstream])  # as `Lineage.network`
    resume = Resume(Path(path), fingerprint(spec, [files.data], where) + RECORD + lineage)
    outputs = {"checkpoint": out.checkpoint, "sidecar": out.sidecar, "trajectory": out.trajectory}
    train_run(spec, load_dataset(files.data), **outputs, resume=resume, device=where)
