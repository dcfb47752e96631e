# Figures, tables, the scorecard and external models: what a configuration says of them, and what they are made from.

from fa_audit.core.registry import entry_of
from fa_audit.experiments import paths
from fa_audit.experiments.config import model_entry
from fa_audit.experiments.published import FILE, read_published
from fa_audit.results import artefacts, kinds
from fa_audit.results.figures import FIGURES
from fa_audit.results.tables import TABLES

STAGES = {"figures": ("draw_figure", FIGURES), "tables": ("build_table", TABLES)}
# The report sorts its categories by name; the scorecard comes first.
SCORECARD_FOLDER, FIGURES_FOLDER, TABLES_FOLDER = "1 Scorecard", "2 Figures", "3 Tables"
PROVENANCE_FOLDER = "4 Provenance"


@readable
def entry_in(section, name):
    """Return the entry of a figure or a table, its kind, settings, labels and thresholds filled in."""
    return artefacts.artefact_entry(config, GRID, section, name)


@readable
def check_drawable():
    """Find formulas that matplotlib cannot read before training; without dollar signs there are none."""
    titles = [figure["title"] for figure in config.get("figures", {}).values()]
    if texts := [text for text in (*titles, *config.get("labels", {}).values()) if "$" in text]:
        from fa_audit.results.figures.style import check_texts

        check_texts(texts)


if workflow.is_main_process:
    check_drawable()

# Each of these is a part of a figure's or a table's job, from its section and its entry.


def entry(section, entry):
    return entry


@readable
def caption(section, entry):
    return kinds.caption(entry["kind"], Path(workflow.basedir) / "report/captions")


def subcategory(section, entry):
    return ", ".join(sorted({GRID.settings[name].common["dataset"] for name in entry["settings"]}))


def tidy_inputs(section, entry):
    names = artefacts.tables_read(section, entry["kind"])
    return [tidy_file(name, setting) for setting in entry["settings"] for name in names]


def drawing_stage(section, entry):
    script, registry = STAGES[section]
    return stage(script, entry_of(section.removesuffix("s"), registry, entry["kind"]))


def drawing_code(section, entry):
    return code_digest(*drawing_stage(section, entry))


def upstream(section, entry):
    return [LINEAGE.tidy(setting) for setting in entry["settings"]]


def figure(part):
    return lambda wildcards: part("figures", entry_in("figures", wildcards.figure))


def table(part):
    return lambda wildcards: part("tables", entry_in("tables", wildcards.table))


# ---- files by kind


def names_in(section):
    return sorted(config.get(section, {}))


def files_of(section):
    """Return the files of every figure or table."""
    paths_of = {"figures": paths.figure_files, "tables": paths.table_files}[section]
    return [path for name in names_in(section) for path in paths_of(name)]


def settings_of(section):
    """Return the settings that figures or tables show."""
    return sorted(
        {setting for name in names_in(section) for setting in entry_in(section, name)["settings"]}
    )


def origin_files():
    artefacts = [f"results/{section}/{name}" for section in STAGES for name in names_in(section)]
    scorecard = ["results/scorecard", "results/figures/scorecard"] if published_keys() else []
    return [name + paths.ORIGIN for name in (*artefacts, *scorecard)]


def artefacts_digest():
    """Return a digest of what decides every figure, every table and the scorecard."""
    entries = [
        (section, entry_in(section, name)) for section in STAGES for name in names_in(section)
    ]
    parts = [[e, code_digest(*drawing_stage(s, e)), upstream(s, e)] for s, e in entries]
    scripts = [code_digest(*stage(name)) for name in ("build_scorecard", "draw_scorecard")]
    return digest_of([parts, scripts, LINEAGE.audits(published_keys())])


# ---- the scorecard


@readable
def load_published():
    return read_published(
        yaml.safe_load((Path(workflow.basedir) / FILE).read_text(encoding="utf-8"))
    )


PUBLISHED = load_published()


@cache
def published_keys():
    """Return the audits of every setting that has a published run: those runs, and others that may stand in for them."""
    settings = {key.setting for key in PUBLISHED.run_keys_in(GRID)}
    return [key for key in GRID.run_keys("runs") if key.setting in settings]


# ---- external models


def model_files(*kinds):
    return [
        f"results/models/{name}.{kind}"
        for name in names_in("models")
        for kind in kinds or ("json", "md")
    ]


@readable
def model_of(wildcards):
    return model_entry(config.get("models", {}), wildcards.model)


@readable
def model_weights(wildcards):
    path = model_of(wildcards)["weights"]
    # Without its input Snakemake would take results that are there as up to date.
    if path and not os.path.isfile(path):
        raise AuditError(f"models.{wildcards.model}.weights: no file '{path}' in {os.getcwd()}.")
    return path or []


@readable
def model_code(wildcards):
    return code_digest(*stage("audit_model", model_of(wildcards)["model"]))


# ---- the page


def page_artefacts():
    """Return the files of every figure and table, in the order in which the page shows them."""
    scorecard = [*paths.figure_files("scorecard"), "results/scorecard.csv"]
    return [*(scorecard if published_keys() else []), *files_of("figures"), *files_of("tables")]


def page_words(wildcards):
    """Return title and caption of every figure and table, by its section and name."""
    names = [(section, name) for section in STAGES for name in names_in(section)]
    entries = {(section, name): entry_in(section, name) for section, name in names}
    entries["figures", "scorecard"] = {"kind": "scorecard", "title": "Scorecard"}
    return {f"{s}/{n}": [e["title"], caption(s, e)] for (s, n), e in entries.items()}
