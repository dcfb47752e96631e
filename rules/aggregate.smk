rule tidy_setting:
    """The audits and trajectories of one setting as tidy tables."""
    input:
        audits=audits_of,
        trajectories=trajectories_of,
        code=code_files("workflow_scripts/tidy_setting.py"),
    output:
        runs="results/tidy/{setting}/runs.csv",
        layers="results/tidy/{setting}/layers.csv",
        trajectories="results/tidy/{setting}/trajectories.csv",
        work="results/tidy/{setting}/work.csv",
        digests="results/tidy/{setting}/sha256.json",
    log:
        "results/logs/tidy_setting/{setting}.log",
    benchmark:
        "results/benchmarks/tidy_setting/{setting}.tsv"
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    threads: 1
    resources:
        gpu=0,
        mem_mb=1000,
        runtime=15,
    params:
        cells=cells_of,
    script:
        "../workflow_scripts/tidy_setting.py"


rule tidy:
    """One tidy table over all settings."""
    input:
        parts=tidy_parts,
        digests=ancient(part_digests),
        code=code_files("workflow_scripts/tidy.py"),
    output:
        table="results/tidy/{name}.csv",
    log:
        "results/logs/tidy/{name}.log",
    benchmark:
        "results/benchmarks/tidy/{name}.tsv"
    wildcard_constraints:
        name="|".join(TIDY),
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    threads: 1
    resources:
        gpu=0,
        mem_mb=1000,
        runtime=15,
    script:
        "../workflow_scripts/tidy.py"
