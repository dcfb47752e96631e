# The grid: the run behind a set of wildcards, its code, and the files of all runs, by kind.

import re
from functools import cache, reduce
from operator import or_

import yaml

from _code import code_digest, code_files
from fa_audit.networks import ARCHITECTURES
from fa_audit.data import DATASETS
from fa_audit.core.errors import unknown
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.grid import read_grid
from fa_audit.methods import METHODS
from fa_audit.core.registry import entry_of
from fa_audit.results import KINDS

MEASURED = ("runs", "layers", "trajectories")
TIDY = (*MEASURED, "work")


def load_yaml(name):
    return yaml.safe_load((Path(workflow.basedir) / name).read_text())


@readable
def load_grid():
    files = workflow.overwrite_configfiles or ["config.yaml"]
    lines = [load_config(os.path.relpath(path))[1] for path in files]
    return read_grid(config, KINDS, reduce(or_, lines))


GRID = load_grid()


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
    """The runs that a run is compared with, by their roles."""
    spec_of(wildcards)
    return GRID.setting(wildcards.setting).baselines_of(wildcards.run)


def baseline_inputs(wildcards):
    runs = baselines_of(wildcards).values()
    return run_files(
        "baselines", "json", [(wildcards.setting, run, wildcards.seed) for run in runs]
    )


# ---- runs that several settings ask for


def cell_path(cell):
    return "{}/{}/seed{}".format(*cell)


TWINS = {cell_path(cell): cell_path(original) for cell, original in GRID.duplicate_runs.items()}


def twin_pattern():
    return "|".join(map(re.escape, TWINS)) or "(?!)"


def twin_spec(wildcards):
    setting, run, seed = TWINS[wildcards.twin].split("/")
    return spec(setting, run, int(seed.removeprefix("seed"))).to_dict()


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
