# The plan before the first job, and verdicts and files after the last.

import atexit
from itertools import filterfalse

from fa_audit.experiments.origins import Finished
from fa_audit.experiments.plan import plan_table
from fa_audit.results.verdict_summary import verdict_lines


def say(*lines):
    logger.info("\n".join(lines))


def say_start(device):
    say(
        f"fa-audit: computing on {device}; one line per epoch in results/logs/train_network/",
        *table_lines(),
    )


def runs_of(jobs, *names):
    """Return the runs of the jobs of some rules."""
    return {RunKey.of(job.output[0]) for job in jobs if job.rule.name in names}


def table_lines():
    """Return the table of what is asked for, and where Snakemake may do other jobs than those that it counts."""
    dag = workflow.dag  # undocumented: the jobs that the targets need, done or to be done
    # A dry run has "finished" its jobs by the time of its table.
    jobs, to_do, kept = list(dag.jobs), list(dag.needrun_jobs(exclude_finished=False)), []
    networks = runs_of(jobs, "train_network", "share_run")
    audits = runs_of(jobs, "audit_network")
    if in_storage():
        yield "Results are in a storage (--default-storage-provider): finished ones are not counted."
    elif networks:
        finished = Finished(ORIGINS)  # reads every result once, for both
        yield plan_table(finished, COSTS, networks, audits)
        kept += filterfalse(
            finished.network, networks - runs_of(to_do, "train_network", "share_run")
        )
        kept += filterfalse(finished.audit, audits - runs_of(to_do, "audit_network"))
    if kept:
        yield (
            f"Snakemake keeps {len(kept)} networks and audits that the table counts as outstanding: --touch marked them,"
            " or the targets do not need them. To make them: --forcerun train_network audit_network"
        )
    if os.path.isdir("results/checkpoints") and not any(Path(".snakemake/metadata").glob("*")):
        yield (
            "Without .snakemake/metadata Snakemake compares modification times only. Delete the results that the table"
            " counts as outstanding."
        )


def say_results():
    if in_storage():
        say("fa-audit: done. Results and logs are in the storage.")
        return
    made = [
        *(["results/scorecard.md"] if published_settings() else []),
        *(f"results/{section}/" for section in (*STAGES, "models") if names_in(section)),
    ]
    say(*verdict_lines(sorted(GRID.settings)), "", "fa-audit: done. Results:")
    say(*filter(os.path.exists, made), "results/logs/")
    for name in names_in("figures")[:1]:
        say(f"Look first at results/figures/{name}.png")
    if os.path.isdir("results/audits"):
        say("One page of all runs: fa-audit report --html results/audits/*/*/seed*.json")


def say_how_to_go_on():
    say(
        "fa-audit: not finished. Run the same command again: results are kept, and training resumes."
        " If a message above names a damaged file, delete it first."
    )


@atexit.register
def print_table():
    """Print the table at the end of a dry run, which has no start, unless a target is unknown."""
    if DRY_RUN and workflow.dag is not None:
        with suppress(BrokenPipeError):
            os.write(1, "".join(f"{line}\n" for line in table_lines()).encode())
