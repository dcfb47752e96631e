"""fa-audit: train, audit, compare with frozen baselines, draw.

Start reading here; rules/ has one file for each stage.
"""

import sys

from snakemake.utils import min_version
from snakemake_interface_common import at_least_snakemake_version

min_version("9.19")
# The parts of `workflow` that rules/helpers/experiment.smk reads may differ in the next version.
if at_least_snakemake_version("10"):
    sys.exit("fa-audit: found Snakemake 10 or newer; run: pip install 'snakemake>=9.19,<10'")


wildcard_constraints:
    dataset=r"[\w.:]+",
    setting="[a-z][a-z0-9_]*",
    run=r"[^/\s]+",
    seed=r"0|[1-9]\d*",
    figure=r"(?!scorecard\.)[a-z0-9_]+",  # the scorecard has its own rule
    table="[a-z0-9_]+",


include: "rules/helpers/experiment.smk"
include: "rules/helpers/artefacts.smk"
include: "rules/helpers/jobs.smk"
include: "rules/helpers/messages.smk"
include: "rules/data.smk"
include: "rules/train.smk"
include: "rules/baselines.smk"
include: "rules/audit.smk"
include: "rules/tidy.smk"
include: "rules/figures.smk"
include: "rules/tables.smk"
include: "rules/scorecard.smk"
include: "rules/models.smk"
include: "rules/report.smk"


onstart:
    start_work()


onsuccess:
    say_results()


onerror:
    say_how_to_go_on()


if MODE == ExecMode.DEFAULT:
    check_command()


rule all:
    """Everything: scorecard, figures, tables and the results behind them (the default)."""
    input:
        scorecard=lambda wildcards: paths.scorecard_files() if published_settings() else [],
        figures=files_of("figures"),
        tables=files_of("tables"),
        tidy=expand("results/tidy/{name}.csv", name=TIDY if GRID.settings else []),
        results=lambda wildcards: rest_of(GRID.settings),
        models=model_files(),
        origins=lambda wildcards: origin_files(),
    localrule: True


rule train:
    """Every network's checkpoint and trajectory, baselines included."""
    input:
        checkpoints=checkpoint_files,
    localrule: True


rule baselines:
    """Every frozen and shallow baseline."""
    input:
        baselines=baseline_files,
        checkpoints=lambda wildcards: network_files(GRID.run_keys("baselines")),
    localrule: True


rule audit:
    """Every audit, one JSON file per run and seed."""
    input:
        audits=lambda wildcards: run_files("audits", "json", GRID.run_keys("runs")),
        baselines=baseline_files,
        checkpoints=checkpoint_files,
    localrule: True


rule figures:
    """Every figure, as PDF, PNG and SVG."""
    input:
        figures=files_of("figures"),
        results=lambda wildcards: rest_of(settings_of("figures")),
    localrule: True


rule tables:
    """Every table, as csv, markdown, LaTeX and HTML."""
    input:
        tables=files_of("tables"),
        results=lambda wildcards: rest_of(settings_of("tables")),
    localrule: True


rule scorecard:
    """Published numbers against this configuration's audits, which are made first."""
    input:
        scorecard=paths.scorecard_files(),
        results=lambda wildcards: rest_of(published_settings()),
    localrule: True


rule models:
    """The audit of every external model, as JSON and markdown."""
    input:
        models=model_files(),
    localrule: True
