# The messages before the first job and after the last; the logger fa-audit knows them by their part.

import atexit
from itertools import filterfalse

from fa_audit.experiments.origins import Finished
from fa_audit.experiments.plan import plan_table
from fa_audit.results.verdict_summary import verdict_lines
from snakemake.logging import logger


def say(part, *lines):
    logger.info("\n".join(lines), extra={"fa_audit": part})


def say_start(device):
    models = [] if in_storage() else model_files("json")
    done = sum(os.path.exists(path) for path in models)
    say(
        "start",
        "",
        "fa-audit",
        f"  device     {device}",
        *([f"  models     {len(models)}, {done} audited already"] if models else []),
        "  progress   one line per epoch in results/logs/train_network/",
        *table_lines(),
        "",
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
        yield "Results are in a storage (--default-storage-provider); how many are done is not known here."
    elif networks:
        finished = Finished(ORIGINS)  # reads every result once, for both
        yield plan_table(finished, COSTS, networks, audits)
        kept += filterfalse(
            finished.network, networks - runs_of(to_do, "train_network", "share_run")
        )
        kept += filterfalse(finished.audit, audits - runs_of(to_do, "audit_network"))
    if kept:
        yield (
            f"Snakemake leaves {len(kept)} networks and audits as they are that the table counts as to be done: --touch"
            " marked them, or what is asked for is up to date without them. To make them: --forcerun train_network"
            " audit_network"
        )
    elif DRY_RUN and jobs and not to_do:
        yield "Nothing to be done."
    if os.path.isdir("results/checkpoints") and not any(Path(".snakemake/metadata").glob("*")):
        yield (
            "Snakemake's records of these results (.snakemake/metadata) are gone: what is newer than its inputs counts"
            " as up to date, whatever made it. Delete what the table counts as to be done."
        )


def say_results():
    if in_storage():
        say("results", "", "fa-audit: done. Results and logs are in the storage.")
        return
    made = {
        "scorecard": ["results/scorecard.md"] if published_keys() else [],
        "figures": [path for path in files_of("figures") if path.endswith(".pdf")],
        "tables": [path for path in files_of("tables") if path.endswith(".md")],
        "models": model_files("md"),
    }
    lines = [*verdict_lines(sorted(GRID.settings)), "", "fa-audit: done. Results:"]
    for kind, files in made.items():
        if there := [Path(path) for path in files if os.path.exists(path)]:
            names = [path.name for path in there[:3]] + ["..."] * (len(there) > 3)
            many = f"{there[0].parent}/ ({', '.join(names)})"
            lines.append(f"{kind:<10} {many if there[1:] else there[0]}")
    say("results", *lines, "logs       results/logs/")


def say_how_to_go_on(log_files):
    say(
        "stopped",
        "fa-audit: a job failed or the work was interrupted.",
        f"  messages   {log_files[0]}",
        "  to go on   do what a message asks for (a damaged file: delete it) and run the same command again: results are"
        " kept, training resumes where its state was kept",
    )


@atexit.register
def print_table():
    """Print the table at the end of a dry run, which has no start, unless a target is unknown."""
    if DRY_RUN and workflow.dag is not None:
        with suppress(BrokenPipeError):
            os.write(1, "".join(f"{line}\n" for line in table_lines()).encode())
