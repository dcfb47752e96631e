FIGURE = {
    "category": FIGURES_FOLDER,
    "subcategory": lambda wildcards: datasets_of("figures", wildcards.figure),
    "figure": "{figure}",
}


rule draw_figure:
    """One figure from the audits of its settings."""
    input:
        evidence=lambda wildcards: evidence_of("figures", wildcards.figure),
    output:
        *(in_report(path, **FIGURE) for path in paths.artefact_files("figures", "{figure}")),
        origin="results/figures/{figure}.origin.json",
    log:
        "results/logs/draw_figure/{figure}.log",
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    params:
        code=lambda wildcards: code_of("figures", wildcards.figure),
        entry=lambda wildcards: entry_in("figures", wildcards.figure),
        caption=lambda wildcards: caption_of("figures", wildcards.figure),
        origin=lambda wildcards: origin_of("figures", wildcards.figure),
    script:
        "../workflow_scripts/draw_figure.py"
