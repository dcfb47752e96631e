rule audit_model:
    """The audit of one external model, from its description."""
    input:
        data=lambda wildcards: data_file(model_of(wildcards)["dataset"]),
        weights=model_weights,
    output:
        audit="results/models/{model}.json",
    log:
        "results/logs/audit_model/{model}.log",
    benchmark:
        "results/benchmarks/audit_model/{model}.tsv"
    wildcard_constraints:
        model="[a-z][a-z0-9_]*",
    # Run before the long trainings, so that a wrong description fails early.
    priority: 10
    conda:
        "../envs/fa-audit.yaml"
    threads: THREADS
    resources:
        gpu=gpus,
        mem_mb=8000,
        runtime=60,
    params:
        code=lambda wildcards: code_digest("audit_model", model_of(wildcards)["model"]),
        model=model_of,
        thresholds=THRESHOLDS,
        origin=lambda wildcards: data_code(model_of(wildcards)["dataset"]),
        torch_threads=job_threads,
    script:
        "../workflow_scripts/audit_model.py"


rule report_model:
    """The report of one external model, from its audit."""
    input:
        audit="results/models/{model}.json",
    output:
        report="results/models/{model}.md",
    log:
        "results/logs/report_model/{model}.log",
    wildcard_constraints:
        model="[a-z][a-z0-9_]*",
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    params:
        code=code_digest("report_model"),
    script:
        "../workflow_scripts/report_model.py"
