"""Rule audit_network: the protocol on one checkpoint."""

from _workflow import device, logged

from fa_audit.audit.run_audit import audit_files
from fa_audit.core.numerics import set_numerics
from fa_audit.experiments.spec import RunSpec
from fa_audit.protocol.evidence import DiagnosticThresholds

with logged(snakemake), device(snakemake) as where:
    files, wild, params = snakemake.input, snakemake.wildcards, snakemake.params
    set_numerics(params.torch_threads)
    report, about = audit_files(
        files.checkpoint,
        files.data,
        sidecar=files.sidecar,
        trajectory=files.trajectory,
        baselines=dict(zip(params.baselines, files.baselines, strict=True)),
        spec=RunSpec.from_dict(params.spec),
        device=where,
        thresholds=DiagnosticThresholds.of(params.thresholds),
        name=wild.run,
    )
    key = {"setting": wild.setting, "run": wild.run, "seed": int(wild.seed)}
    report.replace(**key, **about).write(snakemake.output.audit)
