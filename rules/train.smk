rule train_network:
    """Train one network; resume from the state that an interrupted training saved."""
    input:
        data=data_of,
    output:
        checkpoint="results/checkpoints/{setting}/{run}/seed{seed}.safetensors",
        sidecar="results/checkpoints/{setting}/{run}/seed{seed}.json",
        trajectory="results/trajectories/{setting}/{run}/seed{seed}.csv",
    log:
        "results/logs/train_network/{setting}/{run}/seed{seed}.log",
    benchmark:
        "results/benchmarks/train_network/{setting}/{run}/seed{seed}.tsv"
    group:
        group_of_training
    conda:
        "../envs/fa-audit.yaml"
    threads: THREADS
    resources:
        gpu=gpus,
        mem_mb=estimated(COSTS.training_memory_mb, "train_network"),
        runtime=estimated(COSTS.training_minutes, "train_network"),
    params:
        code=lambda wildcards: run_code("train", spec_of(wildcards)),
        origin=lambda wildcards: data_code(spec_of(wildcards).dataset),
        spec=spec_values,
        torch_threads=job_threads,
    script:
        "../workflow_scripts/train.py"


rule share_run:
    """Copy the network of another setting's run: an equal specification gives the same bits."""
    input:
        checkpoint=original_file("checkpoints", "safetensors"),
        sidecar=original_file("checkpoints", "json"),
        trajectory=original_file("trajectories", "csv"),
    output:
        checkpoint="results/checkpoints/{duplicate}.safetensors",
        sidecar="results/checkpoints/{duplicate}.json",
        trajectory="results/trajectories/{duplicate}.csv",
    log:
        "results/logs/share_run/{duplicate}.log",
    wildcard_constraints:
        duplicate="|".join(map(re.escape, ORIGINALS)) or "(?!)",
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    params:
        code=lambda wildcards: code_digest("share_run"),
        spec=lambda wildcards: values_of(ORIGINALS[wildcards.duplicate]),
        origin=lambda wildcards: ORIGINS.network(ORIGINALS[wildcards.duplicate]),
    script:
        "../workflow_scripts/share_run.py"


ruleorder: share_run > train_network
