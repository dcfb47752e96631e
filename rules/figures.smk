rule draw_figure:
    """One figure from tidy tables."""
    input:
        tidy=figure_tidy,
        code=figure_code,
    output:
        pdf="results/figures/{figure}.pdf",
        png="results/figures/{figure}.png",
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
        settings=figure_settings,
    script:
        "../workflow_scripts/draw_figure.py"
