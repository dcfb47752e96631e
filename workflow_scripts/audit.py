"""Rule audit_network: the protocol on one checkpoint."""

from _workflow import device, logged

from fa_audit.audit.run_audit import audit_files
from fa_audit.core.files import digest_of
from fa_audit.core.numerics import set_numerics
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.protocol.limits import DiagnosticThresholds

with logged(snakemake), device(snakemake) as where:
    set_numerics(snakemake.params.torch_threads)
    files, wild, params = snakemake.input, snakemake.wildcards, snakemake.params
    spec = RunSpec.from_dict(params.spec)
    report, about = audit_files(
        files.checkpoint,
        files.data,
        sidecar=files.sidecar,
        trajectory=files.trajectory,
        baselines=dict(zip(params.baselines, files.baselines, strict=True)),
        spec=spec,
        method=None
        if spec.method in METHODS
        else spec.method,  # a class that the configuration names
        architecture=spec.architecture,
        device=where,
        thresholds=DiagnosticThresholds.of(params.thresholds),
        name=wild.run,
    )
    key = {"setting": wild.setting, "run": wild.run, "seed": int(wild.seed)}
    origin = digest_of([params.code, params.origin, params.thresholds])  # as `Origins.audit`
    report.replace(**key, **about, lineage=origin).write(snakemake.output.audit)
