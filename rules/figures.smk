rule draw_figure:
    """One figure from tidy tables."""
    input:
        tidy=figure(tidy_inputs),
    output:
        pdf=report(
            "results/figures/{figure}.pdf",
            caption="../report/artefact.rst",
            category=FIGURES_FOLDER,
            subcategory=figure(subcategory),
            labels={"figure": "{figure}", "format": "pdf"},
        ),
        png=report(
            "results/figures/{figure}.png",
            caption="../report/artefact.rst",
            category=FIGURES_FOLDER,
            subcategory=figure(subcategory),
            labels={"figure": "{figure}", "format": "png"},
        ),
        origin="results/figures/{figure}.origin.json",
    log:
        "results/logs/draw_figure/{figure}.log",
    benchmark:
        "results/benchmarks/draw_figure/{figure}.tsv"
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    threads: 1
    resources:
        gpu=0,
        mem_mb=1000,
        runtime=15,
    params:
        code=figure(drawing_code),
        entry=figure(entry),
        caption=figure(caption),
        upstream=figure(upstream),
    script:
        "../workflow_scripts/draw_figure.py"
