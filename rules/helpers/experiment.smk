# The configuration, its grid of runs, and the run and files that wildcards name.

import os
import re
import sys
from functools import cache
from pathlib import Path

import fa_audit
from fa_audit.core.errors import AuditError
from fa_audit.core.files import digest_of
from fa_audit.core.stages import code_digest
from fa_audit.experiments.config_file import LineOf, load_config, select_settings, typed
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.origins import Origins, data_code, run_code
from fa_audit.experiments.paths import NETWORK_FILES, TIDY, RunKey, data_file, run_files
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.artefacts import KINDS
from snakemake.logging import logger
from snakemake.settings.enums import RerunTrigger
from snakemake.utils import update_config
from snakemake_interface_executor_plugins.settings import ExecMode


def readable(function):
    """Make a function print bad input as one line, without Snakemake's traceback.

    Input functions may use it, because Snakemake calls them before the first job, when sys.exit
    still ends Snakemake.
    """

    def wrapped(*args):
        try:
            return function(*args)
        except AuditError as error:
            sys.exit(f"fa-audit: {error}")

    return wrapped


PROJECT = Path(readable.__code__.co_filename).resolve().parents[2]  # the folder of the Snakefile
LIBRARY = Path(fa_audit.__file__).resolve().parents[1]
# Jobs import this library and the user's own code, even in a conda environment.
FOLDERS = [str(LIBRARY), *os.environ.get("PYTHONPATH", "").split(os.pathsep), os.getcwd()]
os.environ.update(PYTHONPATH=os.pathsep.join(dict.fromkeys(filter(None, FOLDERS))))

# Snakemake does not document the attributes of `workflow` that the rules read: those in the next
# lines, and elsewhere `dag_settings`, `local_exec` and `dag`.

# Files given on the command line, or by a workflow that uses this module; they replace config.yaml.
CONFIG_FILES = list(workflow.configfiles)
# Single values from --config.
COMMAND_LINE = workflow.config_settings.config
# The main process checks the command; the process of a single job on a node does not.
MODE = workflow.exec_mode
# A dry run calls no onstart, so messages.smk prints its table.
DRY_RUN = workflow.output_settings.dryrun
# The limits that --resources, --cores and --jobs set. Without a GPU limit, GPU jobs are refused.
LIMITS = workflow.global_resources
# Files up to this many bytes are compared by content, as in profiles/default.
LARGEST_DATA = 2_000_000_000


@readable
def load_lines():
    """Return the line of every value of the configuration files.

    Read the files before Snakemake does, because its errors name no line.
    """
    lines = LineOf()
    for path in filter(os.path.exists, CONFIG_FILES or ["config.yaml"]):
        for place, line in load_config(os.path.relpath(path))[1].items():
            # Leave out entries set by --config: values of the command line have no line in a file.
            if place.split(".")[0] not in COMMAND_LINE:
                lines[place] = line
    return lines


LINES = load_lines()

if not CONFIG_FILES:

    configfile: "config.yaml"


# If this workflow is a module, its part of the configuration decides which keys of --config apply.
update_config(config, {key: typed(COMMAND_LINE[key]) for key in COMMAND_LINE.keys() & config})
readable(select_settings)(config, [*CONFIG_FILES, "config.yaml"][0], LINES)
GRID = readable(read_grid)(config, KINDS, LINES)
THRESHOLDS = DiagnosticThresholds.of(config.get("thresholds", {})).limits

# Snakemake deletes the outputs of a job that fails, yet repeats the job only if a stale job needs
# them (docs/workflow.md). Every job therefore has a parameter `origin`, a digest of all that its
# inputs are made from. An edit that makes a job run also changes the origin of all jobs downstream.
# If the job fails, these stay stale and need its outputs, so Snakemake repeats it.
ORIGINS = Origins(GRID, THRESHOLDS)


# ---- the run behind a set of wildcards


@cache
def spec(key):
    return GRID.spec(key)


@readable
def key_of(wildcards):
    """Return the run that wildcards name; an unknown one is an error."""
    key = RunKey(wildcards.setting, wildcards.run, int(wildcards.seed))
    spec(key)
    return key


def spec_of(wildcards):
    return spec(key_of(wildcards))


@cache
def values_of(key):
    """Return the specification in JSON types, the same object for training and audit."""
    return spec(key).to_dict()


def spec_values(wildcards):
    return values_of(key_of(wildcards))


@cache
def name_missing_options():
    """Warn once of missing options of profiles/default that keep finished trainings up to date.

    Modules and --workflow-profile none do not read that profile. Call this while jobs are
    planned: options are not known before.
    """
    settings = workflow.dag_settings
    missing = []
    if RerunTrigger.CODE in settings.rerun_triggers:
        missing.append("--rerun-triggers mtime params input software-env")
    if settings.max_checksum_file_size < LARGEST_DATA:
        missing.append(f"--max-checksum-file-size {LARGEST_DATA}")
    if missing and MODE == ExecMode.DEFAULT:
        logger.warning(
            f"fa-audit: add {' '.join(missing)} to the command. Otherwise a `touch` of a script or"
            " data file can make every training stale."
        )


def data_of(wildcards):
    name_missing_options()
    return data_file(spec_of(wildcards).dataset)


@readable
def audited(setting):
    """Return the runs of a setting that are audited."""
    return list(GRID.setting(setting).run_keys("runs"))


# ---- runs that an earlier setting trains, too, and that are copied from there

ORIGINALS = {str(key): original for key, original in GRID.duplicate_runs.items()}


def original_file(folder, ending):
    """Return an input function for the file that rule share_run copies."""
    return lambda wildcards: ORIGINALS[wildcards.duplicate].path(folder, ending)


# ---- functions that list files by kind: only requested targets need a list, and a list for ten
# thousand runs takes 15 MB


def network_files(keys):
    """Return every file that the trainings of some runs write."""
    return [path for kind in NETWORK_FILES for path in run_files(*kind, keys)]


def checkpoint_files(wildcards):
    return network_files([*GRID.run_keys("runs"), *GRID.run_keys("baselines")])


def baseline_files(wildcards):
    return run_files("baselines", "json", GRID.run_keys("baselines"))


def rest_of(settings):
    """Return the tidy tables of settings and every file that they are made from."""
    keys = dict.fromkeys(key for name in settings for key in audited(name))
    networks = dict.fromkeys(network for key in keys for network in ORIGINS.networks(key))
    return [
        *network_files(networks),
        *run_files("baselines", "json", [key for key in networks if key not in keys]),
        *run_files("audits", "json", keys),
        *expand("results/tidy/{setting}/{name}.csv", setting=settings, name=TIDY),
        *expand("results/tidy/{setting}/audits.json", setting=settings),
    ]
