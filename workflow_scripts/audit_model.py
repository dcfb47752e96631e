"""Rule audit_model: the protocol on one external model."""

import torch
from _workflow import device, logged

from fa_audit.audit.model_audit import audit_model
from fa_audit.core.files import sha256_of
from fa_audit.core.numerics import set_numerics
from fa_audit.core.origin import process_origin
from fa_audit.data.dataset import load_dataset
from fa_audit.protocol.evidence import DiagnosticThresholds

with logged(snakemake), device(snakemake) as where:
    params, name = snakemake.params, snakemake.wildcards.model
    set_numerics(params.torch_threads)
    # An external model may need kernels without a deterministic form: AdaptiveAvgPool2d on a GPU.
    torch.set_deterministic_debug_mode("warn")
    limits = DiagnosticThresholds.of(params.thresholds)
    report = audit_model(name, params.model, load_dataset(snakemake.input.data), where, limits)
    weights = params.model["weights"]
    report = report.replace(
        model=name,
        entry=params.model,
        weights_sha256=sha256_of(weights) if weights else None,
        provenance=process_origin(where),
    )
    report.write(snakemake.output.audit)
