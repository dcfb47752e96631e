rule audit_network:
    """Every diagnostic of one trained network, per layer, and both verdicts."""
    input:
        checkpoint="results/checkpoints/{setting}/{run}/seed{seed}.safetensors",
        sidecar="results/checkpoints/{setting}/{run}/seed{seed}.json",
        trajectory="results/trajectories/{setting}/{run}/seed{seed}.csv",
        data=data_of,
        baselines=baseline_inputs,
    output:
        audit="results/audits/{setting}/{run}/seed{seed}.json",
    log:
        "results/logs/audit_network/{setting}/{run}/seed{seed}.log",
    benchmark:
        "results/benchmarks/audit_network/{setting}/{run}/seed{seed}.tsv"
    conda:
        "../envs/fa-audit.yaml"
    threads: THREADS
    resources:
        gpu=gpus,
        mem_mb=estimate(COSTS.audit_memory_mb, "audit_network"),
        runtime=estimate(COSTS.audit_minutes, "audit_network"),
    params:
        code=lambda wildcards: run_code("audit", spec_of(wildcards)),
        upstream=lambda wildcards: LINEAGE.audit_inputs(key_of(wildcards)),
        spec=spec_values,
        baselines=lambda wildcards: baselines_of(wildcards.setting, wildcards.run),
        thresholds=THRESHOLDS,
        torch_threads=THREADS,
    script:
        "../workflow_scripts/audit.py"
