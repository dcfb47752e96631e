# Figures, tables and the scorecard: what a configuration says of them, and what they are made from.

from _code import code_files
from _command import targets
from fa_audit.results.figures import FIGURES
from fa_audit.experiments.published import FILE, read_published
from fa_audit.results.tables import TABLES, TABLES_OF_WORK


@readable
def artefact(kind, name):
    if name not in config.get(kind, {}):
        known = ", ".join(sorted(config.get(kind, {}))) or "none"
        raise AuditError(f"the config has no {kind} '{name}'; it has: {known}.")
    entry = {"kind": name} | config[kind][name] | {"thresholds": config.get("thresholds", {})}
    settings = GRID.named(entry["settings"])
    return entry | {"settings": settings, "labels": labels_of(settings)}


def labels_of(settings):
    named = set(settings).union(
        *({*GRID.settings[name].runs, *GRID.settings[name].baselines} for name in settings)
    )
    return {name: text for name, text in config.get("labels", {}).items() if name in named}


def figure_entry(wildcards):
    return artefact("figures", wildcards.figure)


def table_entry(wildcards):
    return artefact("tables", wildcards.table)


# The report sorts its categories by name; the scorecard comes first.
SCORECARD_FOLDER, FIGURES_FOLDER, TABLES_FOLDER = "1 Scorecard", "2 Figures", "3 Tables"
PROVENANCE_FOLDER = "4 Provenance"


def data_sets_of(entry):
    return ", ".join(sorted({GRID.settings[name].common["dataset"] for name in entry["settings"]}))


def figure_group(wildcards):
    return data_sets_of(figure_entry(wildcards))


def table_group(wildcards):
    return data_sets_of(table_entry(wildcards))


@readable
def caption_of(entry):
    path = Path(workflow.basedir) / f"report/captions/{entry['kind']}.rst"
    if not path.exists():
        raise AuditError(f"no caption of '{entry['kind']}' for the report: write {path}.")
    return path.read_text()


def figure_caption(wildcards):
    return caption_of(figure_entry(wildcards))


def table_caption(wildcards):
    return caption_of(table_entry(wildcards))


def tidy_files(entry, names):
    return [f"results/tidy/{setting}/{name}.csv" for setting in entry["settings"] for name in names]


def figure_tidy(wildcards):
    return tidy_files(figure_entry(wildcards), MEASURED)


def table_tidy(wildcards):
    entry = table_entry(wildcards)
    return tidy_files(entry, TIDY if entry["kind"] in TABLES_OF_WORK else MEASURED)


def digests_of(tables):
    # `ancient` where it is an input: the digest of `work` in it differs every time, and must redraw no figure.
    return sorted({f"{os.path.dirname(path)}/sha256.json" for path in tables})


def part_digests(wildcards):
    return digests_of(tidy_parts(wildcards))


def figure_digests(wildcards):
    return digests_of(figure_tidy(wildcards))


def table_digests(wildcards):
    return digests_of(table_tidy(wildcards))


def figure_code(wildcards):
    return code_files(
        "workflow_scripts/draw_figure.py",
        FIGURES[figure_entry(wildcards)["kind"]].partition(":")[0],
    )


def table_code(wildcards):
    return code_files(
        "workflow_scripts/build_table.py",
        TABLES[table_entry(wildcards)["kind"]].partition(":")[0],
    )


# ---- the scorecard


@readable
def load_published():
    return read_published(load_yaml(FILE))


PUBLISHED = load_published()


def scorecard_files():
    return [
        *(f"results/scorecard.{kind}" for kind in ("csv", "md", "html")),
        *(f"results/figures/scorecard.{kind}" for kind in ("pdf", "png")),
    ]


def scorecard_origins():
    return ["results/scorecard.origin.json", "results/figures/scorecard.origin.json"]


def published_cells():
    """The audits of this configuration that published numbers are compared with."""
    return PUBLISHED.cells_in(GRID)


def scorecard_alone():
    """Whether nothing but the scorecard is asked for: it is then made from the audits that are there."""
    rules = {"scorecard", "build_scorecard", "draw_scorecard"}
    return bool(targets()) and targets() <= rules | {*scorecard_files(), *scorecard_origins()}


def scorecard_audits():
    audits = run_files("audits", "json", published_cells())
    return [path for path in audits if Path(path).exists()] if scorecard_alone() else audits
