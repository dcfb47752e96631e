TABLE = {
    "category": TABLES_FOLDER,
    "subcategory": lambda wildcards: datasets_of("tables", wildcards.table),
    "table": "{table}",
}


rule build_table:
    """One table from the audits of its settings, as csv, markdown, LaTeX and HTML."""
    input:
        evidence=lambda wildcards: evidence_of("tables", wildcards.table),
    output:
        *(in_report(path, **TABLE) for path in paths.artefact_files("tables", "{table}")),
        origin="results/tables/{table}.origin.json",
    log:
        "results/logs/build_table/{table}.log",
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    params:
        code=lambda wildcards: code_of("tables", wildcards.table),
        entry=lambda wildcards: entry_in("tables", wildcards.table),
        caption=lambda wildcards: caption_of("tables", wildcards.table),
        origin=lambda wildcards: origin_of("tables", wildcards.table),
    script:
        "../workflow_scripts/build_table.py"
