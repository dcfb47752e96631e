# The plan before the first job, and verdicts and files after the last.

import atexit

from fa_audit.experiments.plan import plan_table
from fa_audit.results.verdict_summary import verdict_lines


def say(*lines):
    logger.info("\n".join(lines))


def planned_jobs():
    """Return the jobs that the targets need, and the set of those that are still to be done.

    Snakemake documents no way to ask for them; only this file reads `workflow.dag`.
    """
    # When a dry run prints its table, Snakemake already counts all jobs as finished.
    return list(workflow.dag.jobs), set(workflow.dag.needrun_jobs(exclude_finished=False))


def table_lines():
    """Return the table of needed networks, if any, and a warning if metadata are missing."""
    jobs, to_do = planned_jobs()
    trainings, audits = {}, {}
    for job in jobs:
        if job.rule.name in ("train_network", "share_run"):
            trainings[RunKey.of(job.output[0])] = job in to_do
        elif job.rule.name == "audit_network":
            audits[RunKey.of(job.output[0])] = job in to_do
    lines = [plan_table(GRID, COSTS, trainings, audits)] if trainings else []
    if os.path.isdir("results/checkpoints") and not any(Path(".snakemake/metadata").glob("*")):
        lines.append(
            "Without .snakemake/metadata Snakemake compares modification times only. Delete results"
            " that other code or options made."
        )
    return lines


def say_results():
    if in_storage():
        say("fa-audit: done. Results and logs are in the storage.")
        return
    made = ["results/scorecard.md"] if published_settings() else []
    made += [f"results/{section}/" for section in (*STAGES, "models") if names_in(section)]
    # Other settings may have files of an earlier configuration.
    packed = [job.output.audits for job in planned_jobs()[0] if job.rule.name == "tidy_setting"]
    settings = sorted(Path(path).parent.name for path in packed)
    say(*verdict_lines(settings), "", "fa-audit: done. Results:")
    say(*filter(os.path.exists, made), "results/logs/")
    pictures = [f"results/figures/{name}.png" for name in names_in("figures")]
    drawn = [*filter(os.path.exists, pictures)]
    if drawn:
        say(f"Look first at {drawn[0]}")
    if os.path.isdir("results/audits"):
        say("One page of all runs: fa-audit report --html results/audits/*/*/seed*.json")


def say_how_to_go_on():
    say(
        "fa-audit: not finished. Run the same command again: results are kept, and training"
        " resumes. If a message above names a damaged file, delete it first."
    )


@atexit.register
def print_table():
    """After a dry run print the table, since Snakemake calls `onstart` only before jobs."""
    if DRY_RUN and workflow.dag is not None:
        with suppress(BrokenPipeError):
            os.write(1, "".join(f"{line}\n" for line in table_lines()).encode())
