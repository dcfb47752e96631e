rule build_table:
    """One table from tidy tables, as csv, markdown and LaTeX."""
    input:
        tidy=table(tidy_inputs),
    output:
        csv=report(
            "results/tables/{table}.csv",
            caption="../report/artefact.rst",
            category=TABLES_FOLDER,
            subcategory=table(subcategory),
            labels={"table": "{table}", "format": "csv"},
        ),
        markdown=report(
            "results/tables/{table}.md",
            caption="../report/artefact.rst",
            category=TABLES_FOLDER,
            subcategory=table(subcategory),
            labels={"table": "{table}", "format": "md"},
        ),
        latex=report(
            "results/tables/{table}.tex",
            caption="../report/artefact.rst",
            category=TABLES_FOLDER,
            subcategory=table(subcategory),
            labels={"table": "{table}", "format": "tex"},
        ),
        html=report(
            "results/tables/{table}.html",
            caption="../report/artefact.rst",
            category=TABLES_FOLDER,
            subcategory=table(subcategory),
            labels={"table": "{table}", "format": "html"},
        ),
        origin="results/tables/{table}.origin.json",
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
        code=table(drawing_code),
        entry=table(entry),
        caption=table(caption),
        upstream=table(upstream),
    script:
        "../workflow_scripts/build_table.py"
