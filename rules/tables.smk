rule build_table:
    """One table from tidy tables, as csv, markdown and LaTeX."""
    input:
        tidy=table_tidy,
        code=table_code,
    output:
        csv="results/tables/{table}.csv",
        markdown="results/tables/{table}.md",
        latex="results/tables/{table}.tex",
    log:
        "results/logs/build_table/{table}.log",
    benchmark:
        "results/benchmarks/build_table/{table}.tsv"
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    threads: 1
    resources:
        gpu=0,
        mem_mb=1000,
        runtime=15,
    params:
        settings=table_settings,
    script:
        "../workflow_scripts/build_table.py"
