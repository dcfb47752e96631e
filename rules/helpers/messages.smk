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
        f"fa-audit on {device}. Progress of a training: results/logs/train_network/",
        *([f"{len(models)} models, {done} audited already"] if models else []),
        *([plan_table(GRID, COSTS)] if GRID.settings else []),
        "",
    )


def say_results():
    made = {
        "scorecard": ["results/scorecard.md"] if published_keys() else [],
        "figures": [path for path in files_of("figures") if path.endswith(".pdf")],
        "tables": [path for path in files_of("tables") if path.endswith(".md")],
        "models": model_files("md"),
    }
    say(
        "results",
        *verdict_lines(sorted(GRID.settings)),
        "",
        *places(made),
        "logs       results/logs/",
    )


def places(made):
    """One line per kind of artefact: its folder, and the first of its files."""
    for kind, paths in made.items():
        if there := [Path(path) for path in paths if Path(path).exists()]:
            names = [path.name for path in there[:3]] + ["..."] * (len(there) > 3)
            yield f"{kind:<10} {there[0].parent}/ ({', '.join(names)})"


def say_how_to_go_on(log_files):
    say("stopped", f"  messages   {log_files[0]}")


# A dry run has no start; the logger prints the table at its end.
if GRID.settings and workflow.output_settings.dryrun:
    say("table", plan_table(GRID, COSTS))
