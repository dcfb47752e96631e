rule train_network:
    """Train one network; go on from its last epoch if it was interrupted."""
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
    conda:
        "../envs/fa-audit.yaml"
    threads: THREADS
    resources:
        gpu=gpus,
        mem_mb=training_memory,
        runtime=training_minutes,
    params:
        code=train_code,
        spec=spec_values,
        torch_threads=THREADS,
    script:
        "../workflow_scripts/train.py"


rule share_run:
    """A network that another setting trains too: the same specification, hence the same bits, copied from there."""
    input:
        checkpoint=twin_checkpoint,
        sidecar=twin_sidecar,
        trajectory=twin_trajectory,
    output:
        checkpoint="results/checkpoints/{twin}.safetensors",
        sidecar="results/checkpoints/{twin}.json",
        trajectory="results/trajectories/{twin}.csv",
    log:
        "results/logs/share_run/{twin}.log",
    benchmark:
        "results/benchmarks/share_run/{twin}.tsv"
    wildcard_constraints:
        twin=twin_pattern(),
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    threads: 1
    resources:
        gpu=0,
        mem_mb=200,
        runtime=5,
    params:
        code=code_digest("workflow_scripts/share_run.py"),
        spec=twin_spec,
    script:
        "../workflow_scripts/share_run.py"


ruleorder: share_run > train_network
