rule prepare_data:
    """One data set as arrays with checksums, downloaded or taken from data_root and checked."""
    output:
        data="results/data/{dataset}.safetensors",
    log:
        "results/logs/prepare_data/{dataset}.log",
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    params:
        code=lambda wildcards: readable(data_code)(wildcards.dataset),
    script:
        "../workflow_scripts/prepare_data.py"
