# Figures, tables, the scorecard and external models: their entries in the configuration, their
# inputs, and the digests of the code that makes them.

from fa_audit.core.registry import entry_of
from fa_audit.experiments import paths
from fa_audit.experiments.config import model_entry
from fa_audit.experiments.published import FILE, read_published_file
from fa_audit.results import artefacts
from fa_audit.results.figures import FIGURES
from fa_audit.results.tables import TABLES

STAGES = {"figures": ("draw_figure", FIGURES), "tables": ("build_table", TABLES)}
# The report sorts its categories by name: digits put the scorecard first.
SCORECARD_FOLDER, FIGURES_FOLDER, TABLES_FOLDER = "1 Scorecard", "2 Figures", "3 Tables"
PUBLISHED_FILE = os.path.relpath(PROJECT / FILE)
PAGE = os.path.relpath(PROJECT / "src/fa_audit/results/page")


if MODE == ExecMode.DEFAULT:
    readable(artefacts.check_formulas)(config, LINES)


# ---- one figure or table, by its section of the configuration and its name


@readable
def entry_in(section, name):
    """Return the entry of a figure or table, with kind, settings and labels filled in."""
    return artefacts.artefact_entry(config, GRID, section, name)


@readable
def caption_of(section, name):
    return artefacts.caption(section, entry_in(section, name)["kind"])


def datasets_of(section, name):
    settings = entry_in(section, name)["settings"]
    return ", ".join(sorted({GRID.settings[setting].common["dataset"] for setting in settings}))


def evidence_of(section, name):
    return paths.evidence_files(entry_in(section, name)["settings"])


def code_of(section, name):
    script, registry = STAGES[section]
    kind = entry_in(section, name)["kind"]
    return code_digest(script, entry_of(section.removesuffix("s"), registry, kind))


def origin_of(section, name):
    return [ORIGINS.tidy(setting) for setting in entry_in(section, name)["settings"]]


def in_report(path, category, subcategory=None, **labels):
    """Mark an output for `snakemake --report`, with its category and labels."""
    labels["format"] = path.rpartition(".")[2]
    caption = "../report/caption.rst"  # relative to the rule's file
    return report(path, caption=caption, category=category, subcategory=subcategory, labels=labels)


# ---- all figures and tables


def names_in(section):
    return sorted(config.get(section, {}))


def files_of(section):
    return [path for name in names_in(section) for path in paths.artefact_files(section, name)]


def settings_of(section):
    """Return the settings that figures or tables show."""
    return sorted({s for name in names_in(section) for s in entry_in(section, name)["settings"]})


def drawn():
    """Return section and name of every figure and table."""
    return [(section, name) for section in STAGES for name in names_in(section)]


def origin_files():
    names = [f"results/{section}/{name}" for section, name in drawn()]
    scorecard = ["results/scorecard", "results/figures/scorecard"] if published_settings() else []
    return [name + paths.ORIGIN for name in (*names, *scorecard)]


@cache
@readable
def published_settings():
    """Return every setting that has a published run."""
    return sorted({key.setting for key in read_published_file(PUBLISHED_FILE).run_keys_in(GRID)})


# ---- external models


def model_files(endings=("json", "md")):
    return [f"results/models/{name}.{ending}" for name in names_in("models") for ending in endings]


@readable
def model_of(wildcards):
    return model_entry(config.get("models", {}), wildcards.model)


@readable
def model_weights(wildcards):
    path = model_of(wildcards)["weights"]
    # Without this error, Snakemake would take existing results for up to date.
    if path and not os.path.isfile(path):
        raise AuditError(f"models.{wildcards.model}.weights: no file '{path}' in {os.getcwd()}.")
    return path or []


# ---- the report page: its figures in order, their texts, and a digest of what it is made from


def page_figures(wildcards):
    names = ["scorecard"] if published_settings() else []
    return [f"results/figures/{name}.svg" for name in [*names, *names_in("figures")]]


def page_words(wildcards):
    """Return title and caption of every figure and table, by its section and name."""
    words = {f"{s}/{n}": [entry_in(s, n)["title"], caption_of(s, n)] for s, n in drawn()}
    return words | {"figures/scorecard": ["Scorecard", artefacts.caption("figures", "scorecard")]}


@cache
def page_origin():
    parts = [[entry_in(*one), code_of(*one), origin_of(*one)] for one in drawn()]
    scripts = [code_digest(name) for name in ("build_scorecard", "draw_scorecard")]
    drawings = digest_of([parts, scripts, *map(ORIGINS.tidy, published_settings())])
    return [drawings, *map(ORIGINS.tidy, sorted(GRID.settings))]
