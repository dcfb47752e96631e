# Helpers of the rules: the grid, paths, resources, messages. No rules here, no rules' helpers elsewhere.

import os
import re
import sys
from functools import cache
from pathlib import Path

import yaml

from _card import asks_for_gpu
from _cluster import check_requests, cluster_devices
from _code import code_digest, code_files
from _command import dry_run, targets
from _folder import check_data, check_times, check_writable
from _inventory import inventory
from _lock import claim_folder
from _machine import check_gpu_limit, most_cards
from _messages import plan, results, way_on
from fa_audit.architectures import ARCHITECTURES
from fa_audit.costs import read_costs
from fa_audit.datasets import DATASETS
from fa_audit.errors import AuditError, unknown
from fa_audit.figures import FIGURES
from fa_audit.grid import read_grid
from fa_audit.methods import METHODS
from fa_audit.models import model_entry
from fa_audit.published import FILE, read_published
from fa_audit.registry import class_literals, entry_of
from fa_audit.tables import TABLES, TABLES_OF_WORK

MEASURED = ("runs", "layers", "trajectories")
TIDY = (*MEASURED, "work")
# Per run: the count decides the bits, and one-thread runs side by side are fastest on a CPU.
THREADS = 1


def load_yaml(name):
    return yaml.safe_load((Path(workflow.basedir) / name).read_text())


if workflow.is_main_process and not dry_run():  # which writes nothing
    readable(check_writable)()


@readable
def load_grid():
    return read_grid(config, load_yaml("schemas/config.schema.yaml"))


@readable
def load_published():
    return read_published(load_yaml(FILE), *map(load_yaml, PUBLISHED_SCHEMAS))


PUBLISHED_SCHEMAS = ["schemas/published.schema.yaml", "schemas/config.schema.yaml"]
GRID = load_grid()
PUBLISHED = load_published()


# ---- the run behind a set of wildcards


@readable
def spec_of(wildcards):
    return spec(wildcards.setting, wildcards.run, int(wildcards.seed))


@cache
def spec(setting, run, seed):
    return GRID.setting(setting).spec(run, seed)


def spec_values(wildcards):
    return spec_of(wildcards).to_dict()


def data_sets():
    """Those that the configuration names."""
    return {setting.common["dataset"] for setting in GRID.settings.values()} | {
        entry["dataset"] for entry in config.get("models", {}).values()
    }


def data_of(wildcards):
    return f"results/data/{spec_of(wildcards).dataset}.safetensors"


def method_entry(wildcards):
    return entry_of("method", METHODS, spec_of(wildcards).method)


def modules_of(wildcards):
    named = (method_entry(wildcards), ARCHITECTURES[spec_of(wildcards).architecture])
    return [entry.partition(":")[0] for entry in named]


def train_code(wildcards):
    return code_digest("workflow_scripts/train.py", *modules_of(wildcards))


def audit_code(wildcards):
    return code_digest("workflow_scripts/audit.py", *modules_of(wildcards))


@readable
def data_code(wildcards):
    if wildcards.dataset not in DATASETS:
        raise unknown("dataset", wildcards.dataset, DATASETS)
    return code_files(
        "workflow_scripts/prepare_data.py", DATASETS[wildcards.dataset].partition(":")[0]
    )


def baselines_of(wildcards):
    spec_of(wildcards)
    names = GRID.setting(wildcards.setting).baselines_of(wildcards.run)
    return {
        role: f"results/baselines/{wildcards.setting}/{run}/seed{wildcards.seed}.json"
        for role, run in names.items()
    }


def baseline_inputs(wildcards):
    return list(baselines_of(wildcards).values())


def baseline_roles(wildcards):
    return list(baselines_of(wildcards))


# ---- runs that several settings ask for


def cell_path(cell):
    return "{}/{}/seed{}".format(*cell)


TWINS = {cell_path(cell): cell_path(original) for cell, original in GRID.twins.items()}


def twin_pattern():
    return "|".join(map(re.escape, TWINS)) or "(?!)"


def twin_checkpoint(wildcards):
    return f"results/checkpoints/{TWINS[wildcards.twin]}.safetensors"


def twin_sidecar(wildcards):
    return f"results/checkpoints/{TWINS[wildcards.twin]}.json"


def twin_trajectory(wildcards):
    return f"results/trajectories/{TWINS[wildcards.twin]}.csv"


# ---- files by kind


def run_files(folder, ending, cells):
    return [f"results/{folder}/{cell_path(cell)}.{ending}" for cell in cells]


def checkpoint_files():
    return run_files("checkpoints", "safetensors", GRID.cells("runs"))


def baseline_files():
    return run_files("baselines", "json", GRID.cells("baselines"))


def audit_files():
    return run_files("audits", "json", GRID.cells("runs"))


def figure_files():
    return [
        f"results/figures/{name}.{kind}"
        for name in sorted(config.get("figures", {}))
        for kind in ("pdf", "png")
    ]


def table_files():
    return [
        f"results/tables/{name}.{kind}"
        for name in sorted(config.get("tables", {}))
        for kind in ("csv", "md", "tex", "html")
    ]


def origin_files():
    configured = [
        f"results/{kind}/{name}.origin.json"
        for kind in ("figures", "tables")
        for name in sorted(config.get(kind, {}))
    ]
    return configured + (scorecard_origins() if published_cells() else [])


def sweep_settings():
    return [name for name, setting in sorted(GRID.settings.items()) if setting.sweep]


def sweep_tables():
    return [f"results/sweeps/{name}.csv" for name in sweep_settings()]


def sweep_files():
    return sweep_tables() + run_files("sweeps", "csv", GRID.cells("sweep"))


def sweep_trajectories_of(wildcards):
    return run_files("sweeps", "csv", GRID.setting(wildcards.setting).cells("sweep"))


@readable
def cells_of(wildcards):
    return list(GRID.setting(wildcards.setting).cells("runs"))


def audits_of(wildcards):
    return run_files("audits", "json", cells_of(wildcards))


def trajectories_of(wildcards):
    return run_files("trajectories", "csv", cells_of(wildcards))


def tidy_parts(wildcards):
    return [f"results/tidy/{setting}/{wildcards.name}.csv" for setting in sorted(GRID.settings)]


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


# ---- resources


def on_cluster():
    """Whether jobs are sent to a cluster's nodes, or this is such a job: the machine here decides nothing then."""
    # A dry run hides its executor; `jobs` is what a cluster has in place of `cores`.
    if workflow.dryrun:
        return workflow.resource_settings.nodes is not None
    return workflow.remote_exec or not workflow.local_exec


def gpus(wildcards):
    """One GPU per job, on a cluster always; on a machine without any, none, so that jobs fill its cores instead."""
    return 1 if on_cluster() or most_cards() else 0


COSTS = read_costs(Path(workflow.basedir) / "benchmarks/costs.json")
MARGIN = 2  # another machine may be slower than the one that was measured


def declared(wildcards, name):
    """What a method's class says of its cost."""
    base = class_literals("fa_audit.methods.method:Method")
    return (base | class_literals(method_entry(wildcards)))[name]


def asked_of(rule):
    """What is written for the resources of a rule; --set-resources and profiles have the last word."""
    resources = workflow.get_rule(rule).resources.items()
    return {"gpu": gpus(None)} | {n: r.raw for n, r in resources if r.raw is not None}


@cache
def device_of(rule):
    return "gpu" if asks_for_gpu(asked_of(rule)) else "cpu"


def training_minutes(wildcards):
    spec = spec_of(wildcards)
    hours = COSTS.training_hours(spec, device_of("train_network"))
    if hours is None:
        return round(30 + 2 * spec.epochs * declared(wildcards, "relative_time"))
    return round(30 + MARGIN * 60 * hours)


def audit_minutes(wildcards):
    hours = COSTS.audit_hours(spec_of(wildcards), device_of("audit_network"))
    return round(15 + MARGIN * 60 * (hours or 0))


def training_memory(wildcards):
    return memory(wildcards, "train_network")


def audit_memory(wildcards):
    return memory(wildcards, "audit_network") + 1000


def memory(wildcards, rule):
    """Main memory, which a GPU's job needs too: where it was not measured there, as much as on a CPU."""
    spec = spec_of(wildcards)
    measured = COSTS.memory_mb(spec, device_of(rule)) or COSTS.memory_mb(spec, "cpu") or 0
    return max(2000, round(1.25 * measured)) + declared(wildcards, "memory_mb")


# ---- what a person sees


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
    print(plan(GRID, devices(), COSTS, model_files("json")), file=sys.stderr)


def say_results():
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
    print(way_on(log_files[0]), file=sys.stderr)


# ---- models of somebody else


def model_files(*kinds):
    names = sorted(config.get("models", {}))
    return [f"results/models/{name}.{kind}" for name in names for kind in kinds or ("json", "md")]


@readable
def model_of(wildcards):
    return model_entry(config.get("models", {}), wildcards.model)


def model_data(wildcards):
    return f"results/data/{model_of(wildcards)['dataset']}.safetensors"


@readable
def model_weights(wildcards):
    path = model_of(wildcards)["weights"]
    # Without its input Snakemake would take results that are there as up to date.
    if path and not os.path.isfile(path):
        raise AuditError(f"models.{wildcards.model}.weights: no file '{path}' in {os.getcwd()}.")
    return path or []


@readable
def model_code(wildcards):
    maker = model_of(wildcards)["model"].partition(":")[0]
    return code_files("workflow_scripts/audit_model.py", maker)
