rule manifest:
    """Contents and origins of every figure and table, so that a copy of them can be checked."""
    input:
        origins=lambda wildcards: origin_files(),
    output:
        manifest=report(
            "results/MANIFEST.json",
            caption="../report/manifest.rst",
            category=PROVENANCE_FOLDER,
            labels={"file": "MANIFEST.json"},
        ),
    log:
        "results/logs/manifest.log",
    benchmark:
        "results/benchmarks/manifest.tsv"
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    threads: 1
    resources:
        gpu=0,
        mem_mb=500,
        runtime=5,
    params:
        code=lambda wildcards: code_digest("manifest"),
        origin=lambda wildcards: artefacts_digest(),
    script:
        "../workflow_scripts/manifest.py"
