# The configuration and its grid: the run behind a set of wildcards, and its files.

import os
import re
import sys
from functools import cache, reduce
from operator import or_
from pathlib import Path

import fa_audit
from fa_audit.core.errors import AuditError
from fa_audit.core.files import digest_of
from fa_audit.core.origin import code_digest
from fa_audit.experiments.config_file import LineOf, load_config
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.origins import Origins, data_stage, previous_run, run_code, stage
from fa_audit.experiments.paths import TIDY, RunKey, data_file, run_files, tidy_file
from fa_audit.results.kinds import KINDS
from snakemake_interface_executor_plugins.settings import ExecMode


def readable(function):
    """Make bad input end in its one message: an exception would bring Snakemake's traceback along.

    For input functions too: they are called before the first job, when sys.exit ends Snakemake. It would read as Ctrl-C
    later, but what they answered once does not change.
    """

    def wrapped(*args):
        try:
            return function(*args)
        except AuditError as error:
            sys.exit(f"fa-audit: {error}")

    return wrapped


PROJECT = Path(readable.__code__.co_filename).resolve().parents[2]  # this file's
LIBRARY = Path(fa_audit.__file__).resolve().parents[1]
# Scripts import the library that plans them, in a conda environment too, and the user's own code.
FOLDERS = [str(LIBRARY), *os.environ.get("PYTHONPATH", "").split(os.pathsep), os.getcwd()]
os.environ.update(PYTHONPATH=os.pathsep.join(dict.fromkeys(filter(None, FOLDERS))))

# What Snakemake does not document is read here and, since it is known later, at `workflow.local_exec` and `workflow.dag`.
CONFIG_FILES = list(
    workflow.configfiles
)  # from the command line, or a workflow with this module: they replace ours
MODE = (
    workflow.exec_mode
)  # the main process checks the command; that of a single job on a node does not
DRY_RUN = workflow.output_settings.dryrun  # has no onstart, hence a table of its own
LIMITS = (
    workflow.global_resources
)  # of --resources, cores and nodes: GPU jobs without a limit are refused


@readable
def load_lines():
    """Return the line of every value of the configuration; read before Snakemake does, whose errors name no line."""
    files = filter(os.path.exists, CONFIG_FILES or ["config.yaml"])
    names = [os.path.abspath(path).removeprefix(f"{os.getcwd()}/") for path in files]
    return reduce(or_, [load_config(name)[1] for name in names], LineOf())


LINES = load_lines()

# --configfile replaces config.yaml; --config changes single values of either.
if not CONFIG_FILES:

    configfile: "config.yaml"


GRID = readable(read_grid)(config, KINDS, LINES)
THRESHOLDS = config.get("thresholds", {})

# Snakemake records a failed job as done, and its outputs are gone (docs/faults.md). A job's parameter `origin` is a
# digest of what its inputs are made from: after a failure it has changed, so the job asks for the input that is missing.
ORIGINS = Origins(GRID, THRESHOLDS)


# ---- the run behind a set of wildcards


@cache
def spec(setting, run, seed):
    return GRID.setting(setting).spec(run, seed)


@readable
def key_of(wildcards):
    """Return the run that wildcards name; an unknown one is an error."""
    key = RunKey(wildcards.setting, wildcards.run, int(wildcards.seed))
    spec(*key)
    return key


def spec_of(wildcards):
    return spec(*key_of(wildcards))


@cache
def values_of(key):
    return spec(*key).to_dict()  # one object for the training and the audit of a run


def spec_values(wildcards):
    return values_of(key_of(wildcards))


def data_of(wildcards):
    return data_file(spec_of(wildcards).dataset)


def previous_network(wildcards):
    """Return the network of the snapshot that a run's training goes on from."""
    previous = previous_run(GRID, key_of(wildcards))
    return run_files("checkpoints", "safetensors", [previous] if previous else [])


@readable
def audited(setting):
    """Return the runs of a setting that are audited."""
    return list(GRID.setting(setting).run_keys("runs"))


# A run that an earlier setting trains too is copied from there.
ORIGINALS = {str(key): original for key, original in GRID.duplicate_runs.items()}


# ---- files by kind. Functions, so that a target's files are listed only when the target is asked for: those of ten
# thousand runs take 15 MB.


def checkpoint_files(wildcards):
    return run_files(
        "checkpoints", "safetensors", [*GRID.run_keys("runs"), *GRID.run_keys("baselines")]
    )


def baseline_files(wildcards):
    return run_files("baselines", "json", GRID.run_keys("baselines"))


def rest_of(settings):
    """Return the tidy tables of settings and every file that they rest on, all of which a target asks for."""
    keys = dict.fromkeys(key for name in settings for key in audited(name))
    networks = dict.fromkeys(network for key in keys for network in ORIGINS.networks(key))
    return [
        *run_files("checkpoints", "safetensors", networks),
        *run_files("baselines", "json", [key for key in networks if key not in keys]),
        *run_files("audits", "json", keys),
        *(tidy_file(name, setting) for setting in settings for name in TIDY),
    ]
