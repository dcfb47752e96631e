# What is looked at before the first job, and what is said to a reader.

from _cluster import check_requests, cluster_devices
from _command import dry_run, targets
from _folder import check_data, check_places, check_times, check_writable
from _lock import claim_folder
from _machine import check_gpu_limit, most_cards
from _records import note_started, settle, settle_after_a_kill
from fa_audit.experiments.plan import plan_table
from fa_audit.results.verdict_summary import verdict_lines
from snakemake.logging import logger

if workflow.is_main_process:
    readable(check_places)()
    readable(settle_after_a_kill)()
    if not dry_run():  # which writes no result
        readable(check_writable)()

LARGE = 5_000  # runs: Snakemake takes about 6 ms to plan and print the jobs of each


@cache
def table_alone():
    """Whether a dry run without a target shows the table of the grid and nothing else."""
    runs = sum(1 for _ in GRID.all_cells()) + sum(1 for _ in GRID.cells("sweep"))
    return dry_run() and runs > LARGE


def devices():
    """Where jobs compute, in words, once nothing speaks against it."""
    limits = {n: r.value for n, r in workflow.global_resources.items() if not n.startswith("_")}
    if not workflow.local_exec:
        sent = {job.rule.name: job for job in workflow.dag.needrun_jobs() if not job.is_local}
        where = cluster_devices({rule: asked_of(rule) for rule in sent}, limits)
        if workflow.executor_plugin.name == "slurm":
            check_requests(workflow.scheduler._executor, sent)
        return where
    if not most_cards():
        return "CPU"
    check_gpu_limit(limits)
    return f"GPU, {limits['gpu']} at a time" if limits["gpu"] else "CPU"


# ---- what is said; the logger fa-audit tells these messages from Snakemake's own by their part


def say(part, *lines):
    logger.info("\n".join(lines), extra={"fa_audit": part})


def say_inventory():
    """The table of the grid, which the logger fa-audit prints at the end of a dry run."""
    if GRID.settings and dry_run():
        say("table", plan_table(GRID, COSTS))
    if table_alone() and not targets():
        say(
            "note",
            f"More than {LARGE:,} runs: this table alone. Every job: snakemake -n all (minutes).",
        )


@readable
def start_work():
    claim_folder()
    check_times(Path(workflow.basedir))
    check_data(data_sets())
    device = devices()
    note_started(str(path) for job in workflow.dag.needrun_jobs() for path in job.output)
    models = model_files("json")
    done = sum(os.path.exists(path) for path in models)
    say(
        "start",
        "",
        f"fa-audit on {device}. Progress of a training: results/logs/train_network/",
        *([f"{len(models)} models, {done} audited already"] if models else []),
        *([plan_table(GRID, COSTS)] if GRID.settings else []),
        "",
    )


def say_results():
    readable(settle)()
    made = {
        "scorecard": scorecard_files()[:1] if published_cells() else [],
        "figures": figure_files()[::2],
        "tables": table_files()[1::4],
        "models": model_files("md"),
    }
    say("results", *verdict_lines(sorted(GRID.settings)), "", *places(made), "logs       results/logs/")


def places(made):
    """One line per kind of artefact: its folder, and the first of its files."""
    for kind, paths in made.items():
        if there := [Path(path) for path in paths if Path(path).exists()]:
            names = [path.name for path in there[:3]] + ["..."] * (len(there) > 3)
            yield f"{kind:<10} {there[0].parent}/ ({', '.join(names)})"


def say_how_to_go_on(log_files):
    readable(settle)()
    say("stopped", f"  messages   {log_files[0]}", "  results are kept; a training goes on after its last epoch.")
