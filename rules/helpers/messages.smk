# What is looked at before the first job, and what a person is told.

from _cluster import check_requests, cluster_devices
from _command import dry_run, targets
from _folder import check_data, check_places, check_times, check_writable
from _inventory import inventory
from _lock import claim_folder
from _machine import check_gpu_limit, most_cards
from _messages import plan, results, way_on
from _records import note_started, settle, settle_after_a_kill

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


def say_inventory():
    """A dry run ends before `onstart`; its table is printed while the plan is made."""
    if GRID.settings and dry_run():
        print(inventory(GRID, COSTS), file=sys.stderr)
    if table_alone() and not targets():
        print(
            f"More than {LARGE:,} runs: this table alone. Every job: snakemake -n all (minutes).",
            file=sys.stderr,
        )


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


@readable
def start_work():
    claim_folder()
    check_times(Path(workflow.basedir))
    check_data(data_sets())
    banner = plan(GRID, devices(), COSTS, model_files("json"))
    note_started(str(path) for job in workflow.dag.needrun_jobs() for path in job.output)
    print(banner, file=sys.stderr)


def say_results():
    readable(settle)()
    print(
        results(
            GRID,
            [
                *(scorecard_files() if published_cells() else []),
                *figure_files(),
                *table_files(),
                *sweep_tables(),
                *model_files("md"),
            ],
        ),
        file=sys.stderr,
    )


def say_how_to_go_on(log_files):
    readable(settle)()
    print(way_on(log_files[0]), file=sys.stderr)
