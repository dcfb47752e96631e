rule collect_baseline:
    """Accuracy and specification of a frozen or shallow network, for audits with the same seed."""
    input:
        sidecar="results/checkpoints/{setting}/{run}/seed{seed}.json",
        trajectory="results/trajectories/{setting}/{run}/seed{seed}.csv",
    output:
        baseline="results/baselines/{setting}/{run}/seed{seed}.json",
    log:
        "results/logs/collect_baseline/{setting}/{run}/seed{seed}.log",
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    params:
        code=lambda wildcards: code_digest("collect_baseline"),
        origin=lambda wildcards: ORIGINS.network(key_of(wildcards)),
        spec=spec_values,
    script:
        "../workflow_scripts/collect_baseline.py"
