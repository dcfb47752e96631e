"""Rule audit_network: the protocol on one checkpoint."""

from typing import TYPE_CHECKING

from _workflow import device, logged

from fa_audit.audit.run_audit import audit
from fa_audit.core.files import write_json
from fa_audit.core.numerics import set_numerics
from fa_audit.core.provenance import provenance
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.data.dataset import load_dataset
from fa_audit.experiments.spec import RunSpec, parse_run
from fa_audit.methods import METHODS
from fa_audit.training.checkpoint import load_checkpoint
from fa_audit.training.learner import load_method
from fa_audit.training.sidecar import check_baseline, check_run, check_spec, read_baseline, read_sidecar
from fa_audit.training.trajectory import read_trajectory

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake), device(snakemake) as where:
    set_numerics(snakemake.params.torch_threads)
    files = snakemake.input
    sidecar = read_sidecar(files.sidecar)
    spec, compared = RunSpec.from_dict(snakemake.params.spec), {}
    check_spec(RunSpec.from_dict(sidecar["spec"]), spec, files.sidecar)
    for (role, name), path in zip(snakemake.params.baselines.items(), files.baselines, strict=True):
        compared[role] = read_baseline(path)
        check_baseline(compared[role], name, spec, path)
    check_run(sidecar, files.sidecar, checkpoint=files.checkpoint, trajectory=files.trajectory)
    named = parse_run(snakemake.wildcards.run).method
    method = None if named in METHODS else load_method(named)  # a class that the configuration names
    learner = load_checkpoint(files.checkpoint, where, method=method)
    check_spec(learner.spec, spec, files.checkpoint)
    report = audit(
        learner,
        load_dataset(files.data).to(where),
        sidecar["accuracy"],
        own_frozen=(own["run"], own["accuracy"]) if (own := compared.get("own")) else None,
        bp_frozen_acc=bp["accuracy"] if (bp := compared.get("bp")) else None,
        thresholds=DiagnosticThresholds(**snakemake.params.thresholds),
        name=snakemake.wildcards.run,
        trajectory=read_trajectory(files.trajectory),
        stopped_after=sidecar["stopped_after"],
    )
    key = {
        "setting": snakemake.wildcards.setting,
        "run": snakemake.wildcards.run,
        "seed": int(snakemake.wildcards.seed),
    }
    about = {"baseline_runs": compared} | {key: sidecar[key] for key in ("spec", "digest", "stopped_after", "seconds")}
    about |= {key: sidecar["provenance"][key] for key in ("device", "commit")} | {"provenance": provenance(where)}
    write_json(snakemake.output.audit, key | report.to_dict() | about)
