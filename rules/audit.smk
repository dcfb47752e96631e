rule audit_network:
    """Every diagnostic of one trained network, per layer, and both verdicts."""
    input:
        checkpoint="results/checkpoints/{setting}/{run}/seed{seed}.safetensors",
        sidecar="results/checkpoints/{setting}/{run}/seed{seed}.json",
        trajectory="results/trajectories/{setting}/{run}/seed{seed}.csv",
        data=data_of,
        baselines=lambda wildcards: run_files(
            "baselines", "json", ORIGINS.networks(key_of(wildcards))[1:]
        ),
    output:
        audit="results/audits/{setting}/{run}/seed{seed}.json",
    log:
        "results/logs/audit_network/{setting}/{run}/seed{seed}.log",
    benchmark:
        "results/benchmarks/audit_network/{setting}/{run}/seed{seed}.tsv"
    group:
        group_of
    conda:
        "../envs/fa-audit.yaml"
    threads: THREADS
    resources:
        gpu=gpus,
        mem_mb=estimated(COSTS.audit_memory_mb, "audit_network"),
        runtime=estimated(COSTS.audit_minutes, "audit_network"),
    params:
        code=lambda wildcards: run_code("audit", spec_of(wildcards)),
        origin=lambda wildcards: ORIGINS.audit_inputs(key_of(wildcards)),
        spec=spec_values,
        baselines=lambda wildcards: GRID.setting(wildcards.setting).baselines_of(wildcards.run),
        thresholds=THRESHOLDS,
        torch_threads=job_threads,
    script:
        "../workflow_scripts/audit.py"
