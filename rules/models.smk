rule audit_model:
    """The audit of one external model, from its description."""
    input:
        data=lambda wildcards: data_file(model_of(wildcards)["dataset"]),
        weights=model_weights,
    output:
        audit="results/models/{model}.json",
        report="results/models/{model}.md",
    log:
        "results/logs/audit_model/{model}.log",
    benchmark:
        "results/benchmarks/audit_model/{model}.tsv"
    wildcard_constraints:
        model="[a-z][a-z0-9_]*",
    # Before long trainings: a wrong description fails early.
    priority: 10
    conda:
        "../envs/fa-audit.yaml"
    threads: THREADS
    resources:
        gpu=gpus,
        mem_mb=8000,
        runtime=60,
    params:
        code=lambda wildcards: code_digest(*stage("audit_model", model_of(wildcards)["model"])),
        model=model_of,
        thresholds=THRESHOLDS,
        origin=lambda wildcards: code_digest(*data_stage(model_of(wildcards)["dataset"])),
        torch_threads=THREADS,
    script:
        "../workflow_scripts/audit_model.py"
