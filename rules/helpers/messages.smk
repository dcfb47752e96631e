# What is printed before the first job and after the last. The logger fa-audit knows these messages by their part.

from fa_audit.experiments.plan import plan_table
from fa_audit.results.verdict_summary import verdict_lines
from snakemake.logging import logger


def say(part, *lines):
    logger.info("\n".join(lines), extra={"fa_audit": part})


def say_start(device):
    models = model_files("json")
    done = sum(os.path.exists(path) for path in models)
    say(
        "start",
        "",
        "fa-audit",
        f"  device     {device}",
        *([f"  models     {len(models)}, {done} audited already"] if models else []),
        "  progress   one line per epoch in results/logs/train_network/",
        *(table_lines() if GRID.settings else []),
        "",
    )


def table_lines(jobs=None):
    """Return the table of the grid, or of a target's jobs, and where Snakemake may do others than it counts."""
    if table := plan_table(ORIGINS, COSTS, jobs):
        yield table
    if os.path.isdir("results/checkpoints") and not any(Path(".snakemake/metadata").glob("*")):
        yield (
            "Snakemake's records of these results (.snakemake/metadata) are gone: what is newer than its inputs counts"
            " as up to date, whatever made it. Delete what the table counts as to be done."
        )


def table_of(networks):
    """Return the lines of a dry run's table, once the logger knows what there is to do: setting, run and seed."""
    return table_lines({RunKey(setting, run, int(seed)) for setting, run, seed in networks})


def say_results():
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


# A dry run has no start; the logger prints the table at its end.
if GRID.settings and DRY_RUN:
    logger.info("\n".join(table_lines()), extra={"fa_audit": "table", "table": table_of})
