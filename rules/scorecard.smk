rule build_scorecard:
    """Compare each published number with its setting's audits; give comparison rule and verdict."""
    input:
        evidence=lambda wildcards: paths.evidence_files(published_settings()),
        published=PUBLISHED_FILE,
    output:
        csv=in_report("results/scorecard.csv", SCORECARD_FOLDER, scorecard="table"),
        markdown=in_report("results/scorecard.md", SCORECARD_FOLDER, scorecard="table"),
        origin="results/scorecard.origin.json",
    log:
        "results/logs/build_scorecard.log",
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    params:
        caption=lambda wildcards: artefacts.caption("figures", "scorecard"),
        code=lambda wildcards: code_digest("build_scorecard"),
        origin=lambda wildcards: [*map(ORIGINS.tidy, published_settings())],
    script:
        "../workflow_scripts/build_scorecard.py"


rule draw_scorecard:
    """How far every reproduced number lies from the published one."""
    input:
        scorecard="results/scorecard.csv",
    output:
        *(
            in_report(path, SCORECARD_FOLDER, scorecard="figure")
            for path in paths.artefact_files("figures", "scorecard")
        ),
        origin="results/figures/scorecard.origin.json",
    log:
        "results/logs/draw_scorecard.log",
    localrule: True
    conda:
        "../envs/fa-audit.yaml"
    params:
        caption=lambda wildcards: artefacts.caption("figures", "scorecard"),
        code=lambda wildcards: code_digest("draw_scorecard"),
        origin=lambda wildcards: [
            code_digest("build_scorecard"),
            *map(ORIGINS.tidy, published_settings()),
        ],
    script:
        "../workflow_scripts/draw_scorecard.py"
