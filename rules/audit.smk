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
        mem_mb=audit_memory,
        runtime=audit_minutes,
    params:
        code=audit_code,
        spec=spec_values,
        baselines=baselines_of,
        thresholds=config.get("thresholds", {}),
        torch_threads=THREADS,
    script:
        "../workflow_scripts/audit.py"
