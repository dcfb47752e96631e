rule train_network:
    """Train one network; go on from its last epoch if it was interrupted."""
    input:
        data=data_of,
        code=train_code,
    output:
        checkpoint="results/checkpoints/{setting}/{run}/seed{seed}.safetensors",
        sidecar="results/checkpoints/{setting}/{run}/seed{seed}.json",
        trajectory="results/trajectories/{setting}/{run}/seed{seed}.csv",
    log:
        "results/logs/train_network/{setting}/{run}/seed{seed}.log",
    benchmark:
        "results/benchmarks/train_network/{setting}/{run}/seed{seed}.tsv"
    conda:
        "../envs/fa-audit.yaml"
    threads: THREADS
    resources:
        gpu=gpus,
        mem_mb=training_memory,
        runtime=training_minutes,
    params:
        spec=spec_values,
        torch_threads=THREADS,
    script:
        "../workflow_scripts/train.py"
