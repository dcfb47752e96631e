"""Rule audit_model: the protocol on one external model."""

import torch
from _workflow import device, logged

from fa_audit.audit.model_audit import audit_model
from fa_audit.core.files import sha256_of
from fa_audit.core.numerics import set_numerics
from fa_audit.core.origin import process_origin
from fa_audit.data.dataset import load_dataset
from fa_audit.protocol.limits import DiagnosticThresholds

with logged(snakemake), device(snakemake) as where:
    set_numerics(snakemake.params.torch_threads)
    torch.set_deterministic_debug_mode(
        "warn"
    )  # an external model may need kernels that have no such form
    entry, name = snakemake.params.model, snakemake.wildcards.model
    limits = DiagnosticThresholds.of(snakemake.params.thresholds)
    report = audit_model(name, entry, load_dataset(snakemake.input.data), where, limits)
    weights = sha256_of(entry["weights"]) if entry["weights"] else None
    about = {"entry": entry, "weights_sha256": weights, "provenance": process_origin(where)}
    report.replace(model=name, **about).write(snakemake.output.audit)
