rule tidy_setting:
    """The audits and trajectories of one setting as tidy tables, and its audits as one JSON."""
    input:
        audits=lambda wildcards: run_files("audits", "json", audited(wildcards.setting)),
        trajectories=lambda wildcards: run_files("trajectories", "csv", audited(wildcards.setting)),
    output:
        runs="results/tidy/{setting}/runs.csv",
        layers="results/tidy/{setting}/layers.csv",
        trajectories="results/tidy/{setting}/trajectories.csv",
        work="results/tidy/{setting}/work.csv",
        audits="results/tidy/{setting}/audits.json",
    log:
        "results/logs/tidy_setting/{setting}.log",
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    params:
        code=lambda wildcards: code_digest("tidy_setting"),
        origin=lambda wildcards: ORIGINS.audits(audited(wildcards.setting)),
    script:
        "../workflow_scripts/tidy_setting.py"


rule tidy:
    """One tidy table over all settings."""
    input:
        parts=expand("results/tidy/{setting}/{{name}}.csv", setting=sorted(GRID.settings)),
    output:
        table="results/tidy/{name}.csv",
    log:
        "results/logs/tidy/{name}.log",
    wildcard_constraints:
        name="|".join(TIDY),
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    params:
        code=lambda wildcards: code_digest("tidy"),
        origin=lambda wildcards: [ORIGINS.tidy(setting) for setting in sorted(GRID.settings)],
    script:
        "../workflow_scripts/tidy.py"
