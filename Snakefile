"""fa-audit: train, audit, compare with frozen baselines, render. Start reading here; rules/ has one file a stage."""

from snakemake.utils import min_version

min_version("9.19")


report: "report/workflow.rst"


wildcard_constraints:
    dataset="[a-z0-9_]+",
    setting="[a-z][a-z0-9_]*",
    run=r"[^/\s]+",
    seed=r"\d+",
    figure=r"(?!scorecard\.)[a-z0-9_]+",  # which has a rule of its own
    table="[a-z0-9_]+",


include: "rules/helpers/config.smk"
include: "rules/helpers/grid.smk"
include: "rules/helpers/artefacts.smk"
include: "rules/helpers/resources.smk"
include: "rules/helpers/models.smk"
include: "rules/helpers/messages.smk"
include: "rules/data.smk"
include: "rules/train.smk"
include: "rules/baselines.smk"


# For the scorecard alone audits are files like any other: without their rule nothing makes or renews them.
if not scorecard_alone():

    include: "rules/audit.smk"


include: "rules/sweep.smk"
include: "rules/aggregate.smk"
include: "rules/figures.smk"
include: "rules/tables.smk"
include: "rules/scorecard.smk"
include: "rules/manifest.smk"
include: "rules/models.smk"


say_inventory()


onstart:
    start_work()


onsuccess:
    say_results()


onerror:
    say_how_to_go_on(log)


rule all:
    """Everything: scorecard, figures, tables and the tidy results behind them (the default)."""
    default_target: not table_alone()
    input:
        scorecard=scorecard_files() if published_cells() else [],
        figures=figure_files(),
        tables=table_files(),
        sweeps=sweep_files(),
        tidy=expand("results/tidy/{name}.csv", name=TIDY if GRID.settings else []),
        models=model_files(),
        manifest="results/MANIFEST.json" if origin_files() else [],
    localrule: True


rule plan:
    """The table of the grid alone, with -n; of a large grid it is what a dry run shows unless it is told a target."""
    default_target: table_alone()
    localrule: True


rule train:
    """Every audited network's checkpoint and trajectory."""
    input:
        checkpoints=checkpoint_files(),
    localrule: True


rule baselines:
    """Every frozen and shallow baseline."""
    input:
        baselines=baseline_files(),
    localrule: True


rule audit:
    """Every audit, one JSON file per run and seed."""
    input:
        audits=audit_files(),
    localrule: True


rule sweeps:
    """Every penalty sweep: one trajectory per method, lambda and seed, and a table of their ends."""
    input:
        sweeps=sweep_files(),
    localrule: True


rule figures:
    """Every figure, PDF and PNG."""
    input:
        figures=figure_files(),
    localrule: True


rule tables:
    """Every table, csv, markdown and LaTeX."""
    input:
        tables=table_files(),
    localrule: True


rule scorecard:
    """Published numbers against the audits that are there already; trains and audits nothing."""
    input:
        scorecard=scorecard_files(),
    localrule: True


rule reproduce:
    """The scorecard from all its audits, which are done first."""
    input:
        scorecard=scorecard_files(),
    localrule: True


rule models:
    """The audit of every model of somebody else, JSON and markdown."""
    input:
        models=model_files(),
    localrule: True
