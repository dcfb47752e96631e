"""Rule collect_baseline: what audits need to know about a frozen or shallow network."""

from _workflow import logged

from fa_audit.core.files import signed, write_json
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.sidecar import read_training
from fa_audit.training.trajectory import check_history, read_trajectory

KEPT = ("accuracy", "spec", "digest", "checkpoint_sha256", "parameters", "trainable_parameters")

with logged(snakemake):
    files, spec = snakemake.input, RunSpec.from_dict(snakemake.params.spec)
    sidecar = read_training(files.sidecar, spec, trajectory=files.trajectory)
    history = read_trajectory(files.trajectory)
    check_history(history, spec, sidecar["accuracy"], sidecar["stopped_after"], files.trajectory)
    # Sidecars of earlier versions have no counts of parameters.
    facts = {key: sidecar[key] for key in KEPT if key in sidecar}
    write_json(snakemake.output.baseline, signed({"run": snakemake.wildcards.run, **facts}))
