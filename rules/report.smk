rule build_report:
    """One HTML file with everything: verdicts, claims, evidence of each run, figures, tables."""
    input:
        audits=lambda wildcards: run_files("audits", "json", GRID.run_keys("runs")),
        models=model_files(["json"]),
        published=lambda wildcards: PUBLISHED_FILE if published_settings() else [],
        scorecard=lambda wildcards: "results/scorecard.csv" if published_settings() else [],
        figures=page_figures,
        tables=lambda wildcards: [f"results/tables/{name}.html" for name in names_in("tables")],
        page=expand(f"{PAGE}/page.{{ending}}", ending=["html", "css", "js"]),
    output:
        page="results/report.html",
    log:
        "results/logs/build_report.log",
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    params:
        code=lambda wildcards: code_digest("build_report"),
        labels=config.get("labels", {}),
        words=page_words,
        origin=lambda wildcards: page_origin(),
    script:
        "../workflow_scripts/build_report.py"
