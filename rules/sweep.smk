rule sweep_trajectory:
    """One trajectory of a penalty sweep: a method at a lambda and a seed, epoch by epoch, and what its credit was worth."""
    input:
        trajectory="results/trajectories/{setting}/{run}/seed{seed}.csv",
        audit="results/audits/{setting}/{run}/seed{seed}.json",
    output:
        trajectory="results/sweeps/{setting}/{run}/seed{seed}.csv",
    log:
        "results/logs/sweep_trajectory/{setting}/{run}/seed{seed}.log",
    benchmark:
        "results/benchmarks/sweep_trajectory/{setting}/{run}/seed{seed}.tsv"
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    threads: 1
    resources:
        gpu=0,
        mem_mb=500,
        runtime=5,
    params:
        code=code_digest("workflow_scripts/sweep_trajectory.py"),
    script:
        "../workflow_scripts/sweep_trajectory.py"


rule sweep_table:
    """The end of every trajectory of a penalty sweep, one row per method, lambda and seed."""
    input:
        trajectories=sweep_trajectories_of,
        code=code_files("workflow_scripts/sweep_table.py"),
    output:
        table="results/sweeps/{setting}.csv",
    log:
        "results/logs/sweep_table/{setting}.log",
    benchmark:
        "results/benchmarks/sweep_table/{setting}.tsv"
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    threads: 1
    resources:
        gpu=0,
        mem_mb=500,
        runtime=5,
    script:
        "../workflow_scripts/sweep_table.py"
